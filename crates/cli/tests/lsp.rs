//! An exchange with `tilewright lsp` over its standard input and output, recorded in `lsp/exchange.txt`: a line for each message, `-->` from the
//! client and `<--` from the server. `TILEWRIGHT_BLESS=1` records it anew.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

/// The program of the exchange. The lines of a matrix product do not fit together, and one has characters of several bytes.
const PROGRAM: &str = "// C = A · Bᵀ, 𝄞
use \"fns.tile\"
size m = 128, n = 128, k = 64
const BM = 64, BK = 16
kernel gemm(a: f16[m, k], b: f16[n, k], c: f16[m, n])
    grid(ceil_div(m, BM), ceil_div(n, BM)) threads(128)
{
    ga = global_view(a[block.x * BM :, :], (BM, BK, ceil_div(k, BK)) : (e0, e1, BK * e1))
    gb = global_view(b[block.y * BM :, :], (BM, BK, ceil_div(k, BK)) : (e0, e1, BK * e1))
    gc = global_view(c[block.x * BM :, block.y * BM :], (BM, BM) : (e0, e1))
    ra = register_tensor(f16, [BM, BK])
    rb = register_tensor(f16, [BK, BK])
    rc = register_tensor(f32, [BM, BM])
    fill(rc, 0.0)
    for i in 0..ceil_div(k, BK) {
        copy(ga[:, :, i], ra) /* 𝄞 */
        copy(gb[:, :, i], rb)
        gemm(rc, ra, rb)
    }
    h = cast(twice(rc), f16)
    copy(h, gc)
}
";

const FUNCTIONS: &str = "// Two times x.
fn twice(x) {
    return 2.0 * x
}
";

const FILE: &str = "file:///tiles/gemm%20%C3%A4.tile";
const FUNCTIONS_FILE: &str = "file:///tiles/fns.tile";

struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    log: String,
    requests: i64,
    /// Kept until the exchange has ended: a server that hangs is killed.
    _done: mpsc::Sender<()>,
}

impl Client {
    fn start() -> Client {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (done, ended) = mpsc::channel::<()>();
        let id = child.id();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the server (process {id}) has not answered for two minutes");
                std::process::exit(101);
            }
        });
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Client { child, input, output, log: String::new(), requests: 0, _done: done }
    }

    /// Writes a message in pieces that end anywhere, as a pipe may.
    fn send(&mut self, message: &Value) {
        self.log += &format!("--> {message}\n");
        let body = message.to_string();
        let kind = "application/vscode-jsonrpc; charset=utf-8";
        let framed = format!("Content-Length: {}\r\nContent-Type: {kind}\r\n\r\n{body}", body.len());
        for piece in framed.as_bytes().chunks(37) {
            self.input.write_all(piece).unwrap();
            self.input.flush().unwrap();
        }
    }

    fn receive(&mut self) -> Value {
        let mut length = None;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended:\n{}", self.log);
            let line = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("`{line}` does not end a header"));
            if line.is_empty() {
                break;
            }
            if let Some(bytes) = line.strip_prefix("Content-Length: ") {
                length = Some(bytes.parse::<usize>().unwrap());
            }
        }
        let mut body = vec![0; length.expect("a message without a length")];
        self.output.read_exact(&mut body).unwrap();
        let mut message: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        // Of completions the labels are enough, and of a form's text that it is one.
        if let Some(items) = message.get_mut("result").and_then(Value::as_array_mut) {
            for item in items.iter_mut().filter(|item| item["label"].is_string()) {
                *item = item["label"].take();
            }
        }
        self.log += &format!("<-- {message}\n");
        message
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Tells the server something, of which so many files' diagnostics come.
    fn notify(&mut self, method: &str, params: Value, published: usize) -> Vec<Value> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        let messages: Vec<Value> = (0..published).map(|_| self.receive()).collect();
        assert!(messages.iter().all(|m| m["method"] == "textDocument/publishDiagnostics"), "{messages:?}");
        messages.into_iter().map(|mut m| m["params"]["diagnostics"].take()).collect()
    }

    fn about(&mut self, method: &str, (line, character): (usize, usize)) -> Value {
        let place =
            json!({ "textDocument": { "uri": FILE }, "position": { "line": line, "character": character } });
        self.request(method, place)["result"].take()
    }

    fn change(
        &mut self,
        range: Option<[usize; 4]>,
        text: &str,
        version: i32,
        published: usize,
    ) -> Vec<Value> {
        let range = range.map(|[a, b, c, d]| {
            json!({ "start": { "line": a, "character": b }, "end": { "line": c, "character": d } })
        });
        let mut change = json!({ "text": text });
        if let Some(range) = range {
            change["range"] = range;
        }
        let params =
            json!({ "textDocument": { "uri": FILE, "version": version }, "contentChanges": [change] });
        self.notify("textDocument/didChange", params, published)
    }

    fn end(mut self) -> (String, ExitStatus) {
        self.request("shutdown", Value::Null);
        self.notify("exit", Value::Null, 0);
        let status = self.child.wait().unwrap();
        (self.log, status)
    }
}

fn opened(uri: &str, text: &str) -> Value {
    json!({ "textDocument": { "uri": uri, "languageId": "tile", "version": 1, "text": text } })
}

/// Line and column, in UTF-16 units, of a text in the program.
fn place(text: &str, of: &str) -> (usize, usize) {
    let at = text.find(of).unwrap_or_else(|| panic!("{of}"));
    let before = &text[..at];
    let line = before.matches('\n').count();
    (line, before.rsplit('\n').next().unwrap_or_default().encode_utf16().count())
}

fn first_code(published: &[Value]) -> &str {
    published[0][0]["code"].as_str().unwrap_or("none")
}

#[test]
fn an_editor_is_served_as_recorded() {
    let program = PROGRAM.replace(" /* 𝄞 */", "").replace("[BK, BK]", "[BM, BK]");
    let mut client = Client::start();
    let capabilities = json!({
        "general": { "positionEncodings": ["utf-16"] },
        "textDocument": { "completion": { "completionItem": { "snippetSupport": true } } },
    });
    let options = json!({ "libraries": true });
    let answer = client.request(
        "initialize",
        json!({ "processId": null, "rootUri": null, "capabilities": capabilities, "initializationOptions": options }),
    );
    assert_eq!(answer["result"]["serverInfo"]["name"], "tilewright");
    client.notify("initialized", json!({}), 0);

    // Functions alone are no mistake; a program with words of another language, then with shapes that clash, is.
    let published = client.notify("textDocument/didOpen", opened(FUNCTIONS_FILE, FUNCTIONS), 1);
    assert_eq!(published, [json!([])]);
    let published = client.notify("textDocument/didOpen", opened(FILE, PROGRAM), 1);
    assert_eq!(first_code(&published), "syntax");
    let (line, column) = place(PROGRAM, " /* 𝄞 */");
    let published =
        client.change(Some([line, column, line, column + " /* 𝄞 */".encode_utf16().count()]), "", 2, 1);
    assert_eq!(first_code(&published), "shape-mismatch");
    let (line, column) = place(PROGRAM, "[BK, BK]");
    let published = client.change(Some([line, column, line, column + 8]), "[BM, BK]", 3, 1);
    assert_eq!(published, [json!([])]);

    // A statement's instruction and cost, a tensor's layout, a word, a constant, a function of another file.
    for (of, says) in [
        ("gemm(rc", "mma"),
        ("ra)", "`f16[64, 16]` in registers"),
        ("fill", "Every element of a register tensor"),
        ("BK = 16", "= 16"),
        ("twice", "Two times x."),
        ("gemm(a:", "cycles estimated"),
    ] {
        let found = client.about("textDocument/hover", place(&program, of));
        let text = found["contents"]["value"].as_str().unwrap_or_else(|| panic!("{of}: {found}"));
        assert!(text.contains(says), "{of}: {text}");
    }

    // Declarations: of a tensor, of a function in another file, and the file of a `use`.
    let found = client.about("textDocument/definition", place(&program, "ga[:"));
    assert_eq!(found["range"]["start"]["line"], place(&program, "ga = ").0);
    for of in ["twice", "fns.tile"] {
        assert_eq!(client.about("textDocument/definition", place(&program, of))["uri"], FUNCTIONS_FILE);
    }
    let (line, character) = place(&program, "ra)");
    let params = json!({
        "textDocument": { "uri": FILE },
        "position": { "line": line, "character": character },
        "context": { "includeDeclaration": true },
    });
    let found = client.request("textDocument/references", params);
    assert_eq!(found["result"].as_array().map(Vec::len), Some(3));
    let found = client.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": FILE } }));
    let names = found["result"].as_array().unwrap().iter().filter_map(|symbol| symbol["name"].as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["m", "n", "k", "BM", "BK", "gemm"]);

    // What another open file says counts, saved or not.
    let params = |version: i32, text: &str| json!({ "textDocument": { "uri": FUNCTIONS_FILE, "version": version }, "contentChanges": [{ "text": text }] });
    let published =
        client.notify("textDocument/didChange", params(2, &FUNCTIONS.replace("twice", "double")), 2);
    assert_eq!(published[0], json!([]));
    assert_eq!(first_code(&published[1..]), "unknown-name");
    client.notify("textDocument/didChange", params(3, FUNCTIONS), 2);

    // Half-written: a statement that begins, with names and statements to choose from; what is known of names is known still.
    let (line, _) = place(&program, "        gemm(rc");
    let published = client.change(Some([line, 0, line, 0]), "        copy(g\n", 4, 1);
    assert_eq!(published[0].as_array().map(Vec::is_empty), Some(false));
    let found = client.about("textDocument/completion", (line, 14));
    let labels: Vec<&str> = found.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in ["ga", "gb", "gc", "ra", "i", "BM", "twice", "reduce"] {
        assert!(labels.contains(&name), "{name} is not among {labels:?}");
    }
    let found = client.about("textDocument/definition", {
        let (line, column) = place(&program, "twice");
        (line + 1, column)
    });
    assert_eq!(found["uri"], FUNCTIONS_FILE);
    let found = client.about("textDocument/hover", (line, 9));
    assert!(found["contents"]["value"].as_str().unwrap_or_default().contains("copy(src, dst)"), "{found}");
    client.change(Some([line, 0, line + 1, 0]), "", 5, 1);

    // A lint, which a comment allows.
    let grid = "ceil_div(m, BM), ceil_div(n, BM)";
    let (at, column) = place(&program, grid);
    let published = client.change(Some([at, column, at, column + 15]), "m / BM", 6, 1);
    assert_eq!(first_code(&published), "short-grid");
    let params = json!({
        "textDocument": { "uri": FILE },
        "range": published[0][0]["range"],
        "context": { "diagnostics": published[0] },
    });
    let found = client.request("textDocument/codeAction", params);
    let edit = &found["result"][0]["edit"]["changes"][FILE][0];
    let [start, text] = [&edit["range"]["start"], &edit["newText"]];
    let line_of = start["line"].as_u64().unwrap() as usize;
    let published = client.change(Some([line_of, 0, line_of, 0]), text.as_str().unwrap(), 7, 1);
    assert_eq!(published, [json!([])]);
    let line = line + 1;

    // Formatting, and then there is nothing left to format.
    client.change(Some([line, 0, line, 8]), "  ", 8, 1);
    let params =
        json!({ "textDocument": { "uri": FILE }, "options": { "tabSize": 4, "insertSpaces": true } });
    let found = client.request("textDocument/formatting", params.clone());
    let text = found["result"][0]["newText"].as_str().unwrap().to_string();
    client.change(None, &text, 9, 1);
    assert_eq!(client.request("textDocument/formatting", params)["result"], json!([]));

    // What is not of the protocol, or not about an open file, is answered too.
    assert_eq!(client.request("textDocument/unheardOf", json!({}))["error"]["code"], -32601);
    assert_eq!(client.request("textDocument/hover", json!({ "position": 1 }))["error"]["code"], -32602);
    let elsewhere =
        json!({ "textDocument": { "uri": "file:///none.tile" }, "position": { "line": 9, "character": 9 } });
    assert_eq!(client.request("textDocument/hover", elsewhere)["result"], Value::Null);
    client.notify("textDocument/didClose", json!({ "textDocument": { "uri": FILE } }), 1);

    let (log, status) = client.end();
    assert_eq!(status.code(), Some(0));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lsp/exchange.txt");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &log).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    for (i, (said, recorded)) in log.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(
            said,
            recorded,
            "message {} of {}; TILEWRIGHT_BLESS=1 records it anew",
            i + 1,
            path.display()
        );
    }
    assert_eq!(log.lines().count(), recorded.lines().count());
}

#[test]
fn a_client_that_goes_away_ends_the_server() {
    let mut client = Client::start();
    client.request("initialize", json!({ "processId": null, "rootUri": null, "capabilities": {} }));
    client.notify("initialized", json!({}), 0);
    client.notify("textDocument/didOpen", opened(FILE, "kernel"), 1);
    let Client { mut child, input, .. } = client;
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn what_is_no_message_ends_the_server_with_a_reason() {
    let run = |input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{said}");
        (output.status.code(), said)
    };
    for input in
        [&b"hello\r\n\r\n"[..], b"", b"Content-Length: 5\r\n\r\nhello", b"Content-Length: 2\r\n\r\n{}"]
    {
        let (code, said) = run(input);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("language server"), "{said}");
    }
}

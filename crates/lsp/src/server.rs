//! The server: documents that are open, questions about them, and what is published unasked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::select;
use lsp_server::{Connection, ErrorCode, Message, Notification, ProtocolError, Request, RequestId, Response};
use lsp_types::notification::{Notification as _, PublishDiagnostics};
use lsp_types::request::Request as _;
use lsp_types::{
    CodeActionParams, CodeActionProviderCapability, CompletionOptions, CompletionParams,
    DidChangeTextDocumentParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams,
    DocumentFormattingParams, DocumentHighlight, DocumentSymbolParams, DocumentSymbolResponse,
    GotoDefinitionParams, Hover, HoverContents, HoverParams, HoverProviderCapability, InitializeParams,
    Location, MarkupContent, MarkupKind, OneOf, PublishDiagnosticsParams, ReferenceParams,
    ServerCapabilities, TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind,
    TextEdit, Uri, notification, request,
};
use serde_json::{Value, json};
use tilewright_machine::Arch;
use tilewright_tile::Sources;

use crate::actions::actions;
use crate::analysis::{Analysis, Job};
use crate::complete::complete;
use crate::hover::hover;
use crate::lines::{Encoding, Lines, apply};
use crate::navigate::{Target, definition, references, symbols};
use crate::outline::Outline;
use crate::paths::path_of;
use crate::publish::{self, is_library, messages};
use crate::worker::Worker;

/// The scheme of the URIs of libraries' texts, which [`TEXT_METHOD`] has.
const SCHEME: &str = "tilewright";
/// The request for the text of a library, by its URI.
const TEXT_METHOD: &str = "tilewright/text";

/// Failure of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The other end does not speak the protocol.
    #[error("the language server's client does not follow the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// Standard input or output has failed.
    #[error("the language server's connection has failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Settings that an editor passes as `initializationOptions`.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// `arch`: the architecture that refusals and costs are of.
    arch: Option<Arch>,
    /// `libraries`: true if the editor asks for the texts of libraries.
    libraries: bool,
    encoding: Encoding,
    snippets: bool,
}

impl Settings {
    fn of(params: &InitializeParams) -> Settings {
        let given = params.initialization_options.as_ref();
        let option = |name: &str| given.and_then(|given| given.get(name));
        let document = params.capabilities.text_document.as_ref();
        let item = document.and_then(|d| d.completion.as_ref()).and_then(|c| c.completion_item.as_ref());
        let offered = params.capabilities.general.as_ref().and_then(|g| g.position_encodings.as_deref());
        Settings {
            arch: option("arch").and_then(Value::as_str).and_then(|name| name.parse().ok()),
            libraries: option("libraries").and_then(Value::as_bool).unwrap_or(false),
            encoding: Encoding::negotiated(offered),
            snippets: item.and_then(|item| item.snippet_support).unwrap_or(false),
        }
    }
}

/// An open document.
struct Document {
    uri: Uri,
    version: i32,
    text: String,
    outline: Outline,
    /// The last analysis, perhaps of an older text.
    analysis: Option<Arc<Analysis>>,
    /// The texts of the last analysis that read all files.
    sources: Sources,
}

/// The server's abilities, as the protocol names them.
fn capabilities(encoding: Encoding) -> ServerCapabilities {
    ServerCapabilities {
        position_encoding: Some(encoding.kind()),
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::INCREMENTAL)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(vec![".".to_string()]),
            ..CompletionOptions::default()
        }),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Simple(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        ..ServerCapabilities::default()
    }
}

/// Serves a client until it asks to end. True if it ended as the protocol has it: `shutdown`, then `exit`.
///
/// # Errors
///
/// A client that does not follow the protocol.
pub fn serve(connection: &Connection) -> Result<bool, ServeError> {
    let (id, params) = connection.initialize_start()?;
    let params: InitializeParams = match serde_json::from_value(params) {
        Ok(params) => params,
        Err(error) => {
            let refused = Response::new_err(id, ErrorCode::InvalidParams as i32, error.to_string());
            let _ = connection.sender.send(refused.into());
            return Ok(false);
        }
    };
    let settings = Settings::of(&params);
    let answer = json!({
        "capabilities": capabilities(settings.encoding),
        "serverInfo": { "name": "tilewright", "version": env!("CARGO_PKG_VERSION") },
    });
    connection.initialize_finish(id, answer)?;
    let worker = Worker::start()?;
    let mut server = Server {
        connection,
        worker,
        settings,
        documents: BTreeMap::new(),
        published: BTreeMap::new(),
        waiting: Vec::new(),
    };
    server.run()
}

/// Serves the client at standard input and output.
///
/// # Errors
///
/// Those of [`serve`], and of the connection.
pub fn serve_stdio() -> Result<bool, ServeError> {
    let (connection, threads) = Connection::stdio();
    let ended = serve(&connection);
    drop(connection);
    let ended = ended?;
    threads.join()?;
    Ok(ended)
}

/// A refusal of a request: a code of the protocol and a message.
type Refused = (ErrorCode, String);

struct Server<'a> {
    connection: &'a Connection,
    worker: Worker,
    settings: Settings,
    /// Open documents by path.
    documents: BTreeMap<String, Document>,
    /// Published messages: by the document that was analysed and the file that the messages are about.
    published: BTreeMap<String, BTreeMap<String, Vec<lsp_types::Diagnostic>>>,
    /// Hovers that wait for an analysis.
    waiting: Vec<(RequestId, HoverParams)>,
}

impl Server<'_> {
    fn run(&mut self) -> Result<bool, ServeError> {
        let done = self.worker.done.clone();
        loop {
            select! {
                recv(self.connection.receiver) -> message => match message {
                    Err(_) => return Ok(false),
                    Ok(Message::Request(request)) => {
                        if self.connection.handle_shutdown(&request)? {
                            return Ok(true);
                        }
                        self.request(request);
                    }
                    Ok(Message::Notification(note)) if note.method == notification::Exit::METHOD => return Ok(false),
                    Ok(Message::Notification(note)) => self.notification(note),
                    // Nothing is asked of the client.
                    Ok(Message::Response(_)) => {}
                },
                recv(done) -> analysed => if let Ok((path, analysis)) = analysed {
                    self.analysed(path, analysis);
                },
            }
        }
    }

    fn send(&self, message: impl Into<Message>) {
        // A client that is gone ends the loop at its next message.
        let _ = self.connection.sender.send(message.into());
    }

    // Documents.

    fn notification(&mut self, note: Notification) {
        let Notification { method, params } = note;
        match method.as_str() {
            notification::DidOpenTextDocument::METHOD => {
                if let Ok(DidOpenTextDocumentParams { text_document: opened }) =
                    serde_json::from_value(params)
                {
                    let outline = Outline::of(&opened.text);
                    let document = Document {
                        outline,
                        version: opened.version,
                        text: opened.text,
                        analysis: None,
                        sources: Sources::default(),
                        uri: opened.uri,
                    };
                    let path = path_of(&document.uri);
                    self.documents.insert(path.clone(), document);
                    self.changed(&path);
                }
            }
            notification::DidChangeTextDocument::METHOD => {
                if let Ok(DidChangeTextDocumentParams { text_document, content_changes }) =
                    serde_json::from_value(params)
                {
                    let path = path_of(&text_document.uri);
                    let Some(document) = self.documents.get_mut(&path) else { return };
                    apply(&mut document.text, content_changes, self.settings.encoding);
                    document.version = text_document.version;
                    document.outline = Outline::of(&document.text);
                    self.changed(&path);
                }
            }
            notification::DidCloseTextDocument::METHOD => {
                if let Ok(DidCloseTextDocumentParams { text_document }) = serde_json::from_value(params) {
                    let path = path_of(&text_document.uri);
                    self.documents.remove(&path);
                    self.publish(&path, BTreeMap::new());
                    self.changed(&path);
                }
            }
            notification::Cancel::METHOD => {
                let id = params.get("id").cloned();
                let id: Option<RequestId> = id.and_then(|id| serde_json::from_value(id).ok());
                if let Some(at) = self.waiting.iter().position(|(waiting, _)| Some(waiting) == id.as_ref()) {
                    let (id, _) = self.waiting.remove(at);
                    let text = "cancelled".to_string();
                    self.send(Response::new_err(id, ErrorCode::RequestCanceled as i32, text));
                }
            }
            // The protocol lets a server ignore what it does not know.
            _ => {}
        }
    }

    /// Has a document analysed anew, and the open ones that use it.
    fn changed(&self, path: &str) {
        let open: HashMap<String, String> =
            self.documents.iter().map(|(path, document)| (path.clone(), document.text.clone())).collect();
        for (other, document) in &self.documents {
            let uses = || document.analysis.as_ref().is_some_and(|analysis| analysis.uses(path));
            if other == path || uses() {
                self.worker.ask(Job {
                    path: other.clone(),
                    version: document.version,
                    text: document.text.clone(),
                    open: open.clone(),
                    arch: self.settings.arch,
                });
            }
        }
    }

    fn analysed(&mut self, path: String, analysis: Analysis) {
        let Some(document) = self.documents.get_mut(&path) else { return };
        if document.text != analysis.text {
            // A newer one is under way.
            return;
        }
        // Names of other files are known while the text is half-written.
        let as_many = analysis.sources.files().count() >= document.sources.files().count();
        if as_many || !analysis.kernels.is_empty() {
            document.sources = analysis.sources.clone();
        }
        let analysis = Arc::new(analysis);
        document.analysis = Some(analysis.clone());
        let uris = |path: &str| publish::uri(self.documents.get(path).map(|d| &d.uri), path);
        let by_file = messages(&path, &analysis, self.settings.encoding, &uris);
        self.publish(&path, by_file);
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, params)| {
            path_of(&params.text_document_position_params.text_document.uri) == path
        });
        self.waiting = waiting;
        for (id, params) in ready {
            self.hover(id, params);
        }
    }

    /// Publishes what the analysis of a document says of files, with what other documents' analyses say of the same files.
    fn publish(&mut self, path: &str, by_file: BTreeMap<String, Vec<lsp_types::Diagnostic>>) {
        let before = self.published.insert(path.to_string(), by_file.clone()).unwrap_or_default();
        let files: BTreeSet<&String> = before.keys().chain(by_file.keys()).collect();
        for file in files {
            let Some(uri) = publish::uri(self.documents.get(file).map(|d| &d.uri), file) else { continue };
            let mut diagnostics: Vec<lsp_types::Diagnostic> = Vec::new();
            for diagnostic in self.published.values().filter_map(|of| of.get(file)).flatten() {
                if !diagnostics.contains(diagnostic) {
                    diagnostics.push(diagnostic.clone());
                }
            }
            let version = self.documents.get(file).map(|d| d.version).filter(|_| file == path);
            let params = PublishDiagnosticsParams { uri, diagnostics, version };
            self.send(Notification::new(PublishDiagnostics::METHOD.to_string(), params));
        }
        if by_file.is_empty() {
            self.published.remove(path);
        }
    }

    // Requests.

    fn request(&mut self, request: Request) {
        let Request { id, method, params } = request;
        if method == request::HoverRequest::METHOD {
            return match serde_json::from_value(params) {
                Ok(params) => self.hover(id, params),
                Err(error) => {
                    self.send(Response::new_err(id, ErrorCode::InvalidParams as i32, error.to_string()))
                }
            };
        }
        let answered = catch_unwind(AssertUnwindSafe(|| self.answer(&method, params)));
        let answered = answered.unwrap_or_else(|_| {
            Err((ErrorCode::InternalError, format!("`{method}` has panicked: please report it")))
        });
        self.send(match answered {
            Ok(value) => Response::new_ok(id, value),
            Err((code, text)) => Response::new_err(id, code as i32, text),
        });
    }

    fn answer(&self, method: &str, params: Value) -> Result<Value, Refused> {
        match method {
            request::Completion::METHOD => {
                let params: CompletionParams = read(params)?;
                self.at(&params.text_document_position, |document, byte| {
                    let Document { text, outline, sources, .. } = document;
                    json!(complete(text, outline, sources, byte, self.settings.snippets))
                })
            }
            request::GotoDefinition::METHOD => {
                let params: GotoDefinitionParams = read(params)?;
                let at = params.text_document_position_params;
                self.at(&at, |document, byte| json!(self.definition(&at.text_document.uri, document, byte)))
            }
            request::References::METHOD => {
                let params: ReferenceParams = read(params)?;
                let uri = params.text_document_position.text_document.uri.clone();
                let declared = params.context.include_declaration;
                self.at(&params.text_document_position, |document, byte| {
                    let found = self.places(document, byte, declared);
                    json!(found.map(|range| Location { uri: uri.clone(), range }).collect::<Vec<_>>())
                })
            }
            request::DocumentHighlightRequest::METHOD => {
                let params: lsp_types::DocumentHighlightParams = read(params)?;
                self.at(&params.text_document_position_params, |document, byte| {
                    let found = self.places(document, byte, true);
                    json!(found.map(|range| DocumentHighlight { range, kind: None }).collect::<Vec<_>>())
                })
            }
            request::DocumentSymbolRequest::METHOD => {
                let params: DocumentSymbolParams = read(params)?;
                Ok(self.document(&params.text_document.uri).map_or(Value::Null, |document| {
                    let found = symbols(&document.text, &document.outline, self.settings.encoding);
                    json!(DocumentSymbolResponse::Nested(found))
                }))
            }
            request::CodeActionRequest::METHOD => {
                let CodeActionParams { text_document, context, .. } = read(params)?;
                Ok(self.document(&text_document.uri).map_or(Value::Null, |document| {
                    let lines = Lines::new(&document.text, self.settings.encoding);
                    json!(actions(&text_document.uri, &document.text, &lines, context.diagnostics))
                }))
            }
            request::Formatting::METHOD => {
                let params: DocumentFormattingParams = read(params)?;
                self.document(&params.text_document.uri)
                    .map_or(Ok(Value::Null), |document| self.formatted(document))
            }
            TEXT_METHOD => {
                let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
                let path =
                    uri.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix(":/")).unwrap_or_default();
                Ok(json!(self.library(path)))
            }
            _ => Err((ErrorCode::MethodNotFound, format!("`{method}` is not served"))),
        }
    }

    fn document(&self, uri: &Uri) -> Option<&Document> {
        self.documents.get(&path_of(uri))
    }

    /// An answer about a place of an open document; of one that is not open, null.
    fn at(
        &self,
        at: &TextDocumentPositionParams,
        answer: impl FnOnce(&Document, usize) -> Value,
    ) -> Result<Value, Refused> {
        let Some(document) = self.document(&at.text_document.uri) else { return Ok(Value::Null) };
        let byte = Lines::new(&document.text, self.settings.encoding).byte(&document.text, at.position);
        Ok(answer(document, byte))
    }

    /// Answers a hover, or keeps it until the text that it is about is analysed.
    fn hover(&mut self, id: RequestId, params: HoverParams) {
        let at = &params.text_document_position_params;
        let analysed = self
            .document(&at.text_document.uri)
            .map(|document| document.analysis.clone().filter(|analysis| analysis.text == document.text));
        let analysis = match analysed {
            None => return self.send(Response::new_ok(id, Value::Null)),
            Some(None) => return self.waiting.push((id, params)),
            Some(Some(analysis)) => analysis,
        };
        let encoding = self.settings.encoding;
        let answered = catch_unwind(AssertUnwindSafe(|| {
            self.at(at, |document, byte| {
                let Document { text, outline, .. } = document;
                let found = hover(text, outline, &analysis, byte);
                json!(found.map(|(value, range)| Hover {
                    contents: HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value }),
                    range: Some(Lines::new(text, encoding).range(text, range)),
                }))
            })
        }));
        let value = answered.ok().and_then(Result::ok).unwrap_or(Value::Null);
        self.send(Response::new_ok(id, value));
    }

    fn places<'b>(
        &self,
        document: &'b Document,
        byte: usize,
        declared: bool,
    ) -> impl Iterator<Item = lsp_types::Range> + use<'b> {
        let lines = Lines::new(&document.text, self.settings.encoding);
        let found = references(&document.text, &document.outline, byte, declared);
        found.into_iter().map(move |range| lines.range(&document.text, range))
    }

    fn definition(&self, uri: &Uri, document: &Document, byte: usize) -> Option<Location> {
        let encoding = self.settings.encoding;
        let path = path_of(uri);
        match definition(&path, &document.text, &document.outline, &document.sources, byte)? {
            Target::Here(range) => {
                let range = Lines::new(&document.text, encoding).range(&document.text, range);
                Some(Location { uri: uri.clone(), range })
            }
            Target::File(path, text, range) => {
                let range = Lines::new(&text, encoding).range(&text, range);
                let uri = if is_library(&path) {
                    let served = self.settings.libraries.then(|| format!("{SCHEME}:/{path}"))?;
                    served.parse().ok()?
                } else {
                    publish::uri(self.documents.get(&path).map(|d| &d.uri), &path)?
                };
                Some(Location { uri, range })
            }
        }
    }

    /// The text of a library, by its path.
    fn library(&self, path: &str) -> Option<String> {
        let all = self.documents.values().flat_map(|document| document.sources.all());
        all.into_iter().find(|file| is_library(path) && file.path == path).map(|file| file.text.to_string())
    }

    /// The edit that formats a document: none where it is formatted.
    fn formatted(&self, document: &Document) -> Result<Value, Refused> {
        let text = &document.text;
        let formatted = tilewright_tile::format(text).map_err(|errors| {
            let first = errors.0.first().map_or_else(String::new, |first| first.message.clone());
            (ErrorCode::RequestFailed, format!("the text is not formatted: {first}"))
        })?;
        let lines = Lines::new(text, self.settings.encoding);
        let edit = (formatted != *text)
            .then(|| TextEdit { range: lines.range(text, 0..text.len()), new_text: formatted });
        Ok(json!(edit.into_iter().collect::<Vec<_>>()))
    }
}

fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, Refused> {
    serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

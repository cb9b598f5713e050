//! Lines of C, CUDA, Python, Rust and of other languages of tiles in a program: what is said of each, and what would be right.

use tilewright_tile::parse;

/// The message and the help about a line in the body of a kernel with tensors `r`, `s` and `t` in registers.
fn said(line: &str) -> (String, String) {
    let text = format!(
        "size n = 64
const BM = 64
kernel f(x: f32[n]) grid(1) threads(32)
{{
    g = global_view(x, (64) : (e0))
    r = register_tensor(f32, [64])
    s = register_tensor(f32, [64])
    t = register_tensor(f32, [64])
    {line}
}}
"
    );
    let errors = parse(&text).expect_err(line);
    let first = &errors.0[0];
    (first.message.clone(), first.help.clone().unwrap_or_default())
}

#[test]
fn forms_of_other_languages_are_known() {
    let cases = [
        ("float acc = 0.0f;", "`float` declares nothing here", "acc = register_tensor(f32, [BM, BN])"),
        ("const int rows = BM / 2;", "`int` declares nothing here", "`const rows = BM / 2` above the kernel"),
        ("int i = block.x * 4;", "`int` declares nothing here", "`let i = block.x * 4`"),
        (
            "__shared__ float tile[32][33];",
            "CUDA's word for shared memory",
            "`tile = shared_tensor(f32, [32, 32])`: rows need no padding",
        ),
        ("u = (half)r", "a cast is a function", "`cast(r, f16)`"),
        ("u = r as f16", "a cast is a function", "`cast(r, f16)`"),
        ("u = r if r > 0.0 else s", "there is no `… if … else …`", "`where(r > 0.0, r, s)`"),
        ("u = where(!(r > s), r, s)", "`!` is C's", "`not`"),
        ("u = r * .5", "a number has digits on either side of its point", "`0.5`"),
        ("u = r * 2.", "a number has digits on either side of its point", "`2.0`"),
        ("u = tl.exp(r)", "names of modules are not written", "`exp(…)`"),
        ("u = std::max(r, s)", "names of modules are not written", "`max(…)`"),
        ("u = torch.frobnicate(r)", "there is no module `torch`", "functions of elements"),
        ("T.copy(g, r)", "names of modules are not written", "`copy(…)`"),
        ("acc = T.alloc_fragment((64,), \"float\")", "TileLang's", "register_tensor"),
        ("i = pl.program_id(0)", "Pallas's", "`let i = block.x`"),
        ("r //= 2.0", "`//` begins a comment", "`r = r / 2.0`"),
        ("u = r[0][1]", "modes stand in one pair of brackets", "`[i, j]`"),
        ("r -= s", "there is no `-=`", "`r = r - s`"),
        ("copy(g r)", "expected `,`", "put a `,` before `r`"),
        ("u = gemm(r, s, t)", "`gemm` has no result", "`gemm(u, a, b)`"),
        ("u = register_tensor([64], f32)", "expected an element type", "the type comes first"),
        ("let u: i32 = 4", "", ""),
    ];
    for (line, message, help) in cases {
        let (found, helped) = said(line);
        assert!(found.contains(message) && helped.contains(help), "{line}: {found} [{helped}]");
    }
}

#[test]
fn pointers_among_parameters_are_known() {
    let text = "__global__ void f(const float* __restrict__ x, float *y, int n) {\n}\n";
    let errors = parse(text).expect_err("CUDA");
    assert!(!errors.0.is_empty());
    let text = "kernel f(const float* x, float *y) grid(1) threads(32) {\n}\n";
    let errors = parse(text).expect_err("pointers");
    assert!(errors.0[0].message.contains("there are no pointers"), "{errors}");
}

#[test]
fn a_layout_of_cute_is_turned_into_one() {
    let (message, help) = said(
        "u = shared_tensor(f32, [64, 64], layout = make_layout(make_shape(64, 64), make_stride(65, 1)))",
    );
    assert!(message.contains("CuTe's") && help.contains("`(64, 64) : (65, 1)`"), "{message} [{help}]");
}

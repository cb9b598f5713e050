//! The page as text.

use crate::model::Page;

const TEMPLATE: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");

/// The script's parts, in the order in which they need each other.
const SCRIPT: [&str; 10] = [
    include_str!("../page/dom.js"),
    include_str!("../page/layout.js"),
    include_str!("../page/model.js"),
    include_str!("../page/picture.js"),
    include_str!("../page/source.js"),
    include_str!("../page/inspector.js"),
    include_str!("../page/timeline.js"),
    include_str!("../page/ptx.js"),
    include_str!("../page/panels.js"),
    include_str!("../page/main.js"),
];

/// The page of some kernels: one HTML document that loads nothing.
pub fn html(page: &Page) -> String {
    // Nothing in the data can end the element that it stands in.
    let data = serde_json::to_string(page).unwrap_or_default().replace('<', "\\u003c");
    let names: Vec<&str> = page.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let title = escaped(&names.join(", "));
    let parts = [("TITLE", title.as_str()), ("STYLE", STYLE), ("DATA", &data), ("SCRIPT", &SCRIPT.concat())];
    let mut text = String::new();
    let mut rest = TEMPLATE;
    for (name, part) in parts {
        let mark = format!("{{{{{name}}}}}");
        if let Some((before, after)) = rest.split_once(mark.as_str()) {
            text.push_str(before);
            text.push_str(part);
            rest = after;
        }
    }
    text.push_str(rest);
    text
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_of_the_template_is_filled_in_its_order() {
        let page = Page::new(tilewright::tile::Sources::new("a.tile", "// </script><b> {{TITLE}}"));
        let text = html(&page);
        for name in ["TITLE", "STYLE", "DATA", "SCRIPT"] {
            assert_eq!(TEMPLATE.matches(&format!("{{{{{name}}}}}")).count(), 1, "{name}");
        }
        assert!(text.contains("// \\u003c/script>\\u003cb> {{TITLE}}"));
        assert_eq!(text.matches("</script>").count(), 2);
    }

    #[test]
    fn the_page_asks_for_nothing_outside_of_itself() {
        let page = Page::new(tilewright::tile::Sources::new("a.tile", ""));
        let text = html(&page);
        for outside in ["http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            // The namespace of SVG is a name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(outside), "{outside}");
        }
        assert!(text.contains("default-src 'none'"));
    }
}

//! Text in HTML pages that commands write.

/// A text as the content of an element or an attribute.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escape_html("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}

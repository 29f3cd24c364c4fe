//! Writing JSON: one pass, shortest numbers that read back to the same double.

use std::fmt::Write as _;

/// Builds a JSON text. Calls must come in the order of the document; commas are placed by the writer.
#[derive(Default)]
pub struct Writer {
    text: String,
    comma: bool,
}

impl Writer {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// The finished text, with a final newline.
    pub fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }

    fn separate(&mut self) {
        if self.comma {
            self.text.push(',');
        }
        self.comma = true;
    }

    /// A line break between entries, so that large files can be read and compared line by line.
    pub fn line(&mut self) -> &mut Self {
        if self.comma {
            self.text.push(',');
            self.comma = false;
        }
        self.text.push('\n');
        self
    }

    /// Writes `{ … }` around `body`.
    pub fn object(&mut self, body: impl FnOnce(&mut Self)) -> &mut Self {
        self.wrap('{', '}', body)
    }

    /// Writes `[ … ]` around `body`.
    pub fn list(&mut self, body: impl FnOnce(&mut Self)) -> &mut Self {
        self.wrap('[', ']', body)
    }

    fn wrap(&mut self, open: char, close: char, body: impl FnOnce(&mut Self)) -> &mut Self {
        self.separate();
        self.text.push(open);
        self.comma = false;
        body(self);
        self.text.push(close);
        self.comma = true;
        self
    }

    /// A member's name; the next call writes its value.
    pub fn name(&mut self, name: &str) -> &mut Self {
        self.separate();
        self.quote(name);
        self.text.push(':');
        self.comma = false;
        self
    }

    /// A string.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.quote(text);
        self
    }

    /// A number; what is not finite has no place in JSON and becomes `null`.
    pub fn number(&mut self, number: f64) -> &mut Self {
        self.separate();
        if number.is_finite() {
            let _ = write!(self.text, "{number}");
        } else {
            self.text.push_str("null");
        }
        self
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.separate();
        self.text.push_str(if value { "true" } else { "false" });
        self
    }

    /// A list of strings.
    pub fn texts<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) -> &mut Self {
        self.list(|w| {
            for text in texts {
                w.text(text);
            }
        })
    }

    /// A list of numbers.
    pub fn numbers(&mut self, numbers: &[f64]) -> &mut Self {
        self.list(|w| {
            for number in numbers {
                w.number(*number);
            }
        })
    }

    fn quote(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                c if (c as u32) < 0x20 => {
                    let _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }
}

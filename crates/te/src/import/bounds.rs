//! What no topology needs, refused before a parser spends memory or time on it.
//!
//! The XML parser keeps every element, compares each attribute with those before it, and hands namespaces down: with
//! nesting, attributes and namespaces bounded, its work grows with the file, not with its square.

use crate::error::{InputError, Reason};

/// Deepest nesting of elements; SNDlib needs seven levels.
const MOST_DEPTH: usize = 32;

/// Most attributes of an element.
const MOST_ATTRIBUTES: usize = 32;

/// Most namespaces that a file declares.
const MOST_NAMESPACES: usize = 64;

/// Most tags and attributes together, for each of which the parser sets memory aside before it begins.
const MOST_MARKS: usize = 4_000_000;

/// Most lines of a text file; a full mesh of a thousand nodes has a million demands.
const MOST_LINES: usize = 2_000_000;

fn refuse(text: &str, at: usize, message: String) -> InputError {
    let line = text.as_bytes()[..at]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
        + 1;
    let message = format!("{message}: this is no topology");
    InputError::new(format!("line {line}"), Reason::TooDeep, message)
}

/// Refuses a text of too many lines.
pub(super) fn lines(text: &str) -> Result<(), InputError> {
    let mut ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    match ends.nth(MOST_LINES) {
        Some((at, _)) => Err(refuse(text, at, format!("more than {MOST_LINES} lines"))),
        None => Ok(()),
    }
}

/// Refuses XML that is nested too deep, or has too many attributes or namespaces. Whether it is well formed is the parser's
/// question: here a tag is what stands between angle brackets outside quotes.
pub(super) fn xml(text: &str) -> Result<(), InputError> {
    let (mut depth, mut namespaces, mut at) = (0_usize, 0, 0);
    while let Some(found) = text[at..].find('<') {
        let start = at + found;
        let rest = &text[start..];
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")];
        let skipped = skipped.iter().find(|(open, _)| rest.starts_with(open));
        if let Some((open, close)) = skipped {
            let body = start + open.len();
            let end = text[body..].find(close);
            at = end.map_or(text.len(), |end| body + end + close.len());
            continue;
        }
        let tag = Tag::of(rest);
        at = start + tag.length;
        if tag.attributes > MOST_ATTRIBUTES {
            let message = format!("more than {MOST_ATTRIBUTES} attributes");
            return Err(refuse(text, start, message));
        }
        namespaces += tag.namespaces;
        if namespaces > MOST_NAMESPACES {
            let message = format!("more than {MOST_NAMESPACES} namespaces");
            return Err(refuse(text, start, message));
        }
        if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
        } else if !rest.starts_with("<!") && !tag.is_whole {
            depth += 1;
        }
        if depth > MOST_DEPTH {
            let message = format!("elements nested more than {MOST_DEPTH} deep");
            return Err(refuse(text, start, message));
        }
    }
    let marks = text.bytes().enumerate();
    let mut marks = marks.filter(|(_, byte)| matches!(byte, b'<' | b'='));
    match marks.nth(MOST_MARKS) {
        Some((at, _)) => {
            let message = format!("more than {MOST_MARKS} tags and attributes");
            Err(refuse(text, at, message))
        }
        None => Ok(()),
    }
}

/// What counts of a tag.
struct Tag {
    /// Bytes, with both brackets.
    length: usize,
    attributes: usize,
    namespaces: usize,
    /// It ends the element that it begins.
    is_whole: bool,
}

impl Tag {
    fn of(text: &str) -> Tag {
        let bytes = text.as_bytes();
        let (mut attributes, mut namespaces, mut quote) = (0, 0, None);
        // Where the last word begins, and whether it is over.
        let (mut word, mut is_over) = (0, true);
        for (i, &byte) in bytes.iter().enumerate().skip(1) {
            match (quote, byte) {
                (Some(q), _) if q == byte => (quote, is_over) = (None, true),
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => {
                    attributes += 1;
                    namespaces += usize::from(bytes[word..i].starts_with(b"xmlns"));
                }
                (None, b'>') => {
                    return Tag {
                        length: i + 1,
                        attributes,
                        namespaces,
                        is_whole: bytes[i - 1] == b'/',
                    };
                }
                (None, byte) if byte.is_ascii_whitespace() => is_over = true,
                _ if is_over => (word, is_over) = (i, false),
                _ => {}
            }
        }
        Tag {
            length: bytes.len(),
            attributes,
            namespaces,
            is_whole: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_topology_has_passes() {
        let deep = format!("{}{}", "<a b='>' c=\"<\">".repeat(32), "</a>".repeat(32));
        let flat = "<?xml version=\"1.0\"?><!DOCTYPE a><a><!-- <a><a> --><![CDATA[<a>]]><b/></a>";
        for text in [deep.as_str(), flat, "", "a < b", "<a", "<!-- open"] {
            assert_eq!(xml(&text.repeat(40)), Ok(()), "{text}");
        }
        assert_eq!(lines(&"a b\n".repeat(MOST_LINES)), Ok(()));
    }

    #[test]
    fn each_bound_is_refused_with_its_line() {
        let deep = format!("<a>\n{}", "<b>".repeat(32));
        let attributes: String = (0..33).map(|i| format!(" a{i} = ''")).collect();
        let namespaces = "<a xmlns:x='y'/>".repeat(65);
        let tags = "<a/>".repeat(MOST_MARKS + 1);
        for (text, line, says) in [
            (deep, "line 2", "nested"),
            (format!("<a{attributes}/>"), "line 1", "attributes"),
            (namespaces, "line 1", "namespaces"),
            (tags, "line 1", "tags and attributes"),
        ] {
            let refused = xml(&text).expect_err(says);
            assert_eq!(refused.pointer, line);
            assert!(refused.message.contains(says), "{refused}");
        }
        let many = lines(&"\n".repeat(MOST_LINES + 1)).expect_err("too many");
        assert_eq!(many.reason, Reason::TooDeep);
    }
}

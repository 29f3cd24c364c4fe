//! Reading and writing files, where `-` is standard input or output.

use std::fs::File;
use std::io::{Read, Write};

use te::error::{InputError, Reason};
use te::json::{Value, parse};
use te::model::Model;

use crate::interruption;

/// Opens a file, or standard input.
pub fn open(path: &str) -> Result<Box<dyn Read>, InputError> {
    if path == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() {
            Err(std::io::Error::other("it is a directory"))
        } else {
            Ok(file)
        }
    });
    match opened {
        Ok(file) => Ok(Box::new(file)),
        Err(e) => Err(
            InputError::new("", Reason::Unreadable, format!("cannot open: {e}")).in_source(path),
        ),
    }
}

/// Reads a model.
pub fn model(path: &str) -> Result<Model, InputError> {
    Model::read(open(path)?).map_err(|e| e.in_source(path))
}

/// Reads any JSON document.
pub fn document(path: &str) -> Result<Value, InputError> {
    parse(open(path)?).map_err(|e| e.in_source(path))
}

/// Largest topology that is read; 40 000 demands take one megabyte.
const LARGEST_TEXT: u64 = 64 << 20;

/// Reads a topology or its demands.
pub fn text(path: &str) -> Result<String, InputError> {
    let mut text = String::new();
    match open(path)?.take(LARGEST_TEXT + 1).read_to_string(&mut text) {
        Ok(count) if count as u64 > LARGEST_TEXT => {
            let message = format!("larger than {} MB: this is no topology", LARGEST_TEXT >> 20);
            Err(InputError::new("", Reason::Unreadable, message).in_source(path))
        }
        Ok(_) => Ok(text),
        Err(e) => Err(
            InputError::new("", Reason::Unreadable, format!("cannot read: {e}")).in_source(path),
        ),
    }
}

/// Writes a result to a file, or to standard output when no file or `-` is named. A file appears whole or not at all.
pub fn write(path: Option<&str>, text: &str) -> Result<(), InputError> {
    // What is being written is written to its end.
    interruption::answered();
    let path = path.unwrap_or("-");
    let written = if path == "-" {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    } else {
        write_file(path, text)
    };
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(
            InputError::new("", Reason::Unreadable, format!("cannot write: {e}")).in_source(path),
        ),
        Ok(()) => Ok(()),
    }
}

fn write_file(path: &str, text: &str) -> std::io::Result<()> {
    // A device or pipe cannot be replaced by a renamed file.
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, text);
    }
    let partial = format!("{path}.partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

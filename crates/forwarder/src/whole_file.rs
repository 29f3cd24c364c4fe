//! Files that are whole whenever somebody reads them, and nobody else's to read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file so that a reader finds all of it or the old one, also after a crash. Only the owner may read it.
///
/// # Errors
/// The system's. The old file is still there then.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = file.with_extension("new");
    // What a process before left there may be anybody's to read.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let mut written = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_the_owners_whatever_was_there() {
        let name = format!("switchboard-whole-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let file = directory.join("secret.json");
        for name in ["secret.json", "secret.new"] {
            let left = directory.join(name);
            fs::write(&left, "of a version before").unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        for text in ["one", "another"] {
            write(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}

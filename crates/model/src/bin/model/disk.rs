//! Reads what the server left on its disk, in the format of docs/files.md.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::names;
use crate::worlds::Tree;

/// Whether files can have streams on this disk: streams take extended attributes.
pub(crate) fn keeps_streams(root: &Path) -> Result<bool, Errno> {
    match setxattr(root, PROBE, b"?", XattrFlags::empty()) {
        Ok(()) => removexattr(root, PROBE).map(|()| true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All files of the clients on this disk.
pub(crate) fn tree(root: &Path, clients: usize) -> Result<Tree, Box<dyn Error>> {
    let mut tree = Tree::new();
    for number in 0..clients {
        let home = names::home(number);
        // A client of a short run may have made nothing yet.
        if root.join(&home).exists() {
            add(root, &home, &mut tree)?;
        }
    }
    Ok(tree)
}

fn add(root: &Path, directory: &str, tree: &mut Tree) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(root.join(directory))? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| "a name that is no text")?;
        let path = format!("{directory}/{name}");
        if entry.file_type()?.is_dir() {
            tree.insert(format!("{path}/"), Vec::new());
            add(root, &path, tree)?;
        } else {
            add_streams(root, &path, tree)?;
            tree.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

// Behind 16 bytes, the attribute of the file holds the number of the directory of its streams.
fn add_streams(root: &Path, path: &str, tree: &mut Tree) -> Result<(), Box<dyn Error>> {
    let mut binding = [0; 32];
    let id = match fgetxattr(File::open(root.join(path))?, BINDING, &mut binding) {
        Ok(32) => u128::from_be_bytes(binding[16..].try_into()?),
        Ok(length) => return Err(format!("{path}: {length} bytes of {BINDING}").into()),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let home = root.join(".landfast-streams").join(format!("{id:032x}"));
    let Ok(listed) = fs::read_dir(home) else { return Ok(()) };
    for entry in listed {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| "a name that is no text")?;
        tree.insert(format!("{path}{name}"), fs::read(entry.path())?);
    }
    Ok(())
}

const PROBE: &str = "user.landfast.probe";
const BINDING: &str = "user.landfast.streams";

//! The files that a start makes or keeps open: each has a name of its own.

use std::path::{Path, PathBuf};

use crate::control::Place;
use crate::failure::Failure;

/// Refuses one name for two of the server's files, where the control socket or the capture is one of them: each would be taken
/// for the other, or lie in its way. Two logs of one name are refused where logs are opened, as those of two servers are.
pub(super) fn check<'a>(
    control: &Place,
    capture: Option<&Path>,
    others: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let control = match control {
        Place::At(path) => Some(path.as_path()),
        Place::Customary | Place::Nowhere => None,
    };
    let made = [("--control", control), ("--pcap", capture)];
    let mut taken: Vec<PathBuf> = others.map(place_of).collect();
    for (what, path) in made.into_iter().filter_map(|(what, path)| Some((what, path?))) {
        let place = place_of(path);
        if taken.contains(&place) {
            let why = "another file of the server has that name";
            return Err(Failure::ConfigValue { what, value: path.display().to_string(), why });
        }
        taken.push(place);
    }
    Ok(())
}

/// The same for all paths that lead to a file, whether it is there or not.
fn place_of(path: &Path) -> PathBuf {
    let path = basics::place_of_file(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or_else(|| Path::new(".")).canonicalize();
    match (above, path.file_name()) {
        (Ok(above), Some(name)) => above.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_for_two_files_of_the_server_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        let (file, link, more) = (path("file"), path("link"), path("more"));
        let socket = Place::At(file.clone());
        for (control, capture, other) in [
            (&socket, Some(&file), &more),
            (&socket, Some(&link), &more),
            (&socket, None, &file),
            (&Place::Nowhere, Some(&file), &link),
        ] {
            let others = [other.as_path()].into_iter();
            let refused = check(control, capture.map(PathBuf::as_path), others).unwrap_err();
            assert!(refused.to_string().contains("another file of the server"), "{refused}");
        }
        check(&socket, Some(&more), [path("third").as_path()].into_iter()).unwrap();
    }
}

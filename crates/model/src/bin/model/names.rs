//! The names that clients use.
//!
//! ```text
//!   c07/            the directory of client 7
//!       f0 .. f3    files, some with a stream :s
//!      d0/ d1/     directories
//!           f0 f1   files, some with a stream :s
//! ```

/// The directory of a client.
pub(crate) fn home(client: usize) -> String {
    format!("c{client:02}")
}

/// Directories that the client makes and removes in it.
pub(crate) fn directories(client: usize) -> [String; 2] {
    [0, 1].map(|directory| format!("{}/d{directory}/", home(client)))
}

/// Files that the client makes and removes.
pub(crate) fn files(client: usize) -> Vec<String> {
    let on_top = (0..4).map(|file| format!("{}/f{file}", home(client)));
    let inside = |directory: String| [0, 1].map(|file| format!("{directory}f{file}"));
    on_top.chain(directories(client).into_iter().flat_map(inside)).collect()
}

/// Files and their streams.
pub(crate) fn contents(client: usize) -> Vec<String> {
    let files = files(client);
    let streams: Vec<_> = files.iter().map(|file| stream(file)).collect();
    files.into_iter().chain(streams).collect()
}

/// The stream of a file.
pub(crate) fn stream(file: &str) -> String {
    format!("{file}:s")
}

pub(crate) fn is_stream(path: &str) -> bool {
    path.contains(':')
}

pub(crate) fn is_directory(path: &str) -> bool {
    path.ends_with('/')
}

/// The directory of a path, unless that is a client's own directory.
pub(crate) fn parent(path: &str) -> Option<&str> {
    let name = path.trim_end_matches('/');
    let end = name.rfind('/')? + 1;
    (name.matches('/').count() > 1).then_some(&name[..end])
}

/// Whether a change of `path` takes `other` along: the streams of a file, the content of a directory,
/// or the path itself.
pub(crate) fn goes_with(path: &str, other: &str) -> bool {
    let behind = |rest: &str| rest.is_empty() || rest.starts_with(':') || is_directory(path);
    other.strip_prefix(path).is_some_and(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_go_with_files_and_files_with_directories() {
        assert!(goes_with("c00/f0", "c00/f0:s") && goes_with("c00/d0/", "c00/d0/f1:s"));
        assert!(!goes_with("c00/f0:s", "c00/f0") && !goes_with("c00/f0", "c00/f01"));
        assert_eq!(
            [parent("c00/d0/f1:s"), parent("c00/d0/"), parent("c00/f1")],
            [Some("c00/d0/"), None, None]
        );
        assert_eq!(contents(0).len(), 16);
    }
}

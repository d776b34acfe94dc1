//! Shares of one server that contain one another, or have one directory: the name of a file in one share, in terms of
//! another.
//!
//! Tops are compared by inode, and by their paths when they were opened. A part of a share that is mounted elsewhere
//! too is not detected.

use super::{Share, SharePath};

impl Share {
    /// The path in `other` of the file that is `path` here; `None` if the file is not in `other`.
    pub fn path_in(&self, other: &Self, path: &SharePath) -> Option<SharePath> {
        if self.root_key == other.root_key {
            return Some(path.clone());
        }
        if let Ok(ours) = self.place.strip_prefix(&other.place) {
            return Some(path.inside(&SharePath::of_components(ours)?));
        }
        path.out_of(&SharePath::of_components(other.place.strip_prefix(&self.place).ok()?)?)
    }

    /// Whether a file may lie in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.root_key == other.root_key
            || self.place.starts_with(&other.place)
            || other.place.starts_with(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShareConfig;

    #[test]
    fn nested_shares_agree_on_the_meaning_of_a_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("p/q")).unwrap();
        std::fs::create_dir_all(dir.path().join("pp")).unwrap();
        let share =
            |below: &str| Share::open(&ShareConfig::new("s", dir.path().join(below))).unwrap();
        let (top, p, q, pp) = (share(""), share("p"), share("p/q"), share("pp"));
        let path = |text| SharePath::parse(text).unwrap();
        assert_eq!(p.path_in(&top, &path("d\\f")), Some(path("p\\d\\f")));
        assert_eq!(top.path_in(&p, &path("p\\d\\f")), Some(path("d\\f")));
        assert_eq!(top.path_in(&q, &path("p\\q")), Some(SharePath::root()));
        assert_eq!(top.path_in(&p, &path("pp\\f")), None);
        assert_eq!(top.path_in(&share(""), &path("f")), Some(path("f")));
        assert_eq!(p.path_in(&pp, &path("f")), None);
        assert!(p.overlaps(&q) && q.overlaps(&top) && !pp.overlaps(&p));
    }
}

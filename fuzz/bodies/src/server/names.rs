//! Paths, wildcard patterns, users, and what the server keeps beside files.

use tree::{Pattern, SharePath, StreamPart, is_short, short_name};

use server::users;

use crate::Input;

/// Two paths with a length in front of the first.
pub(crate) fn path(data: &[u8]) {
    let mut input = Input::new(data);
    let one = String::from_utf8_lossy(input.chunk());
    let other = String::from_utf8_lossy(input.rest());
    let (Ok(one), Ok(other)) = (SharePath::parse(&one), SharePath::parse(&other)) else { return };
    check_path(&one);
    check_path(&other);
    assert!(!(one.is_below(&other) && other.is_below(&one)), "one of them is on top");
    if one.is_below(&other) {
        let (below, above) = (one.components().count(), other.components().count());
        assert!(below > above && one.components().zip(other.components()).all(|(a, b)| a == b));
    }
    if !other.is_root() {
        let moved = one.parent_with_leaf_of(&other);
        assert_eq!((moved.parent(), moved.leaf()), (one.parent(), other.leaf()));
    }
}

fn check_path(path: &SharePath) {
    for component in path.components() {
        assert!(!component.is_empty() && component != "." && component != "..");
        assert!(component.len() <= 255, "longer than any file system takes");
        let forbidden = |c: char| c < ' ' || "\"*/:<>?|\\".contains(c);
        assert!(!component.chars().any(forbidden), "{component:?}");
    }
    assert_eq!(SharePath::parse(&path.to_wire()).as_ref(), Ok(path));
    assert_eq!(path.is_root(), path.components().next().is_none());
    assert!(path.is_root() || path.is_below(&path.parent()));
    assert_eq!(path.components().last().unwrap_or(""), path.leaf());
}

/// A path that may name a stream.
pub(crate) fn stream(data: &[u8]) {
    let wire = String::from_utf8_lossy(data);
    assert!(is_short(&short_name(&wire)) || wire.is_empty(), "{wire:?}");
    let Ok((path, part)) = SharePath::parse_with_stream(&wire) else { return };
    check_path(&path);
    let StreamPart::Named(name) = part else { return };
    let name = name.as_str();
    assert!(!name.is_empty() && name.len() <= 254 && !name.contains(['\0', '/', ':', '\\']));
    let again = format!("{}:{name}:$DATA", path.to_wire());
    let (same_path, same_part) = SharePath::parse_with_stream(&again).expect("it was taken before");
    assert_eq!(same_path, path);
    assert!(matches!(same_part, StreamPart::Named(same) if same.as_str() == name));
}

/// The text of a users file.
pub(crate) fn users(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(parsed) = users::parse(&text) else { return };
    let again = users::parse(&users::emit(&parsed)).expect("what was written can be read");
    assert!(again == parsed);
}

/// A pattern with its length in front, then a name.
pub(crate) fn pattern(data: &[u8]) {
    let mut input = Input::new(data);
    let wire = String::from_utf8_lossy(input.chunk());
    let name = String::from_utf8_lossy(input.rest());
    let Some(pattern) = Pattern::parse(&wire) else {
        assert!(wire.chars().count() > 255, "only a long one is refused");
        return;
    };
    let matches = pattern.matches(&name);
    if let Some(literal) = pattern.literal() {
        assert_eq!(literal, wire);
        assert!(pattern.matches(&literal));
    }
    if pattern.is_all() {
        assert!(matches);
    }
    let wire = if wire.is_empty() { "*".to_owned() } else { wire.into_owned() };
    let (wire, name): (Vec<_>, Vec<_>) = (wire.chars().collect(), name.chars().collect());
    if wire.len() * name.len() <= 1 << 16 {
        assert_eq!(matches, by_definition(&wire, &name), "{wire:?} on {name:?}");
    }
}

// MS-FSA §2.1.4.4, one cell for each pair of suffixes, from the ends backwards.
fn by_definition(pattern: &[char], name: &[char]) -> bool {
    let last_period = name.iter().rposition(|c| *c == '.');
    let mut after = vec![false; name.len() + 1];
    after[name.len()] = true;
    for token in pattern.iter().rev() {
        let mut here = vec![false; name.len() + 1];
        for at in (0..=name.len()).rev() {
            let next = name.get(at).copied();
            let consume = next.is_some() && after[at + 1];
            let stay = next.is_some() && here[at + 1];
            here[at] = match *token {
                '*' => after[at] || stay,
                '<' => after[at] || (stay && last_period != Some(at)),
                '?' => consume,
                '>' => match next {
                    None | Some('.') => after[at],
                    Some(_) => consume,
                },
                '"' => match next {
                    None => after[at],
                    Some(c) => c == '.' && consume,
                },
                literal => next.is_some_and(|c| fold(c) == fold(literal)) && consume,
            };
        }
        after = here;
    }
    after[0]
}

fn fold(c: char) -> char {
    let upper: Vec<_> = c.to_uppercase().collect();
    if let [single] = upper[..] { single } else { c }
}

/// A log of persistent opens, as a crash may have left it.
pub(crate) fn opens(data: &[u8]) {
    let (count, same) = server::fuzzing::log_of_opens(data);
    assert!(same, "what was read is written as it was");
    assert!(count <= data.len() / 100, "an open takes more than 100 bytes");
}

/// The xattrs of a file, which any program of the host may have written: whether it is a
/// directory, the attributes with their length in front, where its streams are.
pub(crate) fn xattrs(data: &[u8]) {
    let mut input = Input::new(data);
    let is_directory = input.byte() & 1 != 0;
    let attributes = input.chunk();
    assert!(server::fuzzing::xattrs(attributes, input.rest(), is_directory));
}

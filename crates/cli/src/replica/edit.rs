//! Changes one key in the text of a group's file, and leaves the rest of the text, comments included, as people wrote it.

use toml::{Table, Value};

/// The text with another value of a key: of the group, or of the member of a name. An empty value takes the key out, so that
/// its default holds. `None` where the text cannot be changed in one line.
pub(super) fn with_key(text: &str, member: Option<&str>, key: &str, value: &str) -> Option<String> {
    let value = (!value.is_empty()).then(|| literal(value));
    let wanted = wanted(text.parse().ok()?, member, key, value.as_ref())?;
    let line = value.map(|value| format!("{key} = {value}"));
    let mut lines: Vec<&str> = text.lines().collect();
    let part = part_of(&lines, member)?;
    let is_it = |line: &str| {
        let name = line.split_once('=').map(|(name, _)| name.trim().trim_matches('"'));
        name == Some(key)
    };
    let at = lines[part.clone()].iter().position(|line| is_it(line)).map(|at| at + part.start);
    // What people wrote behind the value is theirs.
    let line = line.map(|line| match at {
        Some(at) => line + behind_value(lines[at]),
        None => line,
    });
    match (at, &line) {
        (Some(at), Some(line)) => lines[at] = line,
        (Some(at), None) => drop(lines.remove(at)),
        // Behind the last line of the part that says something.
        (None, Some(line)) => {
            let says = |line: &&str| !line.trim().is_empty();
            let last = lines[part.clone()].iter().rposition(says).map_or(0, |last| last + 1);
            lines.insert(part.start + last, line);
        }
        (None, None) => {}
    }
    let changed = lines.join("\n") + "\n";
    // The value may have had several lines, or the key have stood somewhere else.
    let is_right = changed.parse::<Table>().is_ok_and(|found| found == wanted);
    is_right.then_some(changed)
}

/// The comment behind the value of a line, with the space before it: as much as may go and leave the line saying the same.
fn behind_value(line: &str) -> &str {
    let says = |line: &str| line.parse::<Table>().ok();
    let Some(whole) = says(line) else { return "" };
    let mut marks = line.match_indices('#').map(|(at, _)| at);
    let comment = marks.find(|at| says(&line[..*at]).as_ref() == Some(&whole));
    comment.map_or("", |at| &line[line[..at].trim_end().len()..])
}

/// What a value of the command line is in the file: text, where it is nothing else.
fn literal(text: &str) -> Value {
    let is_plain = |value: &Value| !value.is_datetime();
    let read = format!("it = {text}").parse::<Table>().ok().filter(|it| it.len() == 1);
    let value = read.and_then(|mut it| it.remove("it"));
    value.filter(is_plain).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn wanted(
    mut file: Table,
    member: Option<&str>,
    key: &str,
    value: Option<&Value>,
) -> Option<Table> {
    let table = match member {
        None => &mut file,
        Some(name) => {
            let all = file.get_mut("member")?.as_array_mut()?;
            let tables = all.iter_mut().filter_map(Value::as_table_mut);
            let mut named =
                tables.filter(|it| it.get("name").and_then(Value::as_str) == Some(name));
            named.next()?
        }
    };
    match value {
        Some(value) => drop(table.insert(key.to_owned(), value.clone())),
        None => drop(table.remove(key)),
    }
    Some(file)
}

/// The lines of the group itself, or of a member.
fn part_of(lines: &[&str], member: Option<&str>) -> Option<std::ops::Range<usize>> {
    let begins = |line: &&str| line.trim_start().starts_with('[');
    let end_of =
        |from: usize| lines[from..].iter().position(&begins).map_or(lines.len(), |at| from + at);
    let Some(name) = member else { return Some(0..end_of(0)) };
    let heads = lines.iter().enumerate().filter(|(_, line)| line.trim() == "[[member]]");
    let mut parts = heads.map(|(at, _)| at + 1..end_of(at + 1));
    parts.find(|part| {
        lines[part.clone()].iter().any(|line| {
            let of = line.parse::<Table>().ok();
            of.is_some_and(|of| of.get("name").and_then(Value::as_str) == Some(name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\nname = \"db\"\nwindow = \"16M\"  # enough\n\n[[volume]]\nname = \"data\"\n\n\
                        [[member]]\nname = \"alpha\"\nmode = \"sync\"\n\n[[member]]\nname = \"beta\"\n";

    #[test]
    fn a_key_is_changed_added_or_taken_out_and_the_rest_stays() {
        let window = with_key(TEXT, None, "window", "32M").unwrap();
        assert_eq!(window, TEXT.replace("16M", "32M"));
        let marked = "window = \"1#6\" # why: #7\n";
        let changed = with_key(marked, None, "window", "a # b").unwrap();
        assert_eq!(changed, "window = \"a # b\" # why: #7\n");
        let rpo = with_key(TEXT, None, "rpo_ms", "500").unwrap();
        assert_eq!(rpo, TEXT.replace("# enough\n", "# enough\nrpo_ms = 500\n"));
        let none = with_key(TEXT, None, "window", "").unwrap();
        assert_eq!(none, TEXT.replace("window = \"16M\"  # enough\n", ""));
        let mode = with_key(TEXT, Some("beta"), "mode", "async").unwrap();
        assert_eq!(mode, TEXT.replace("\"beta\"\n", "\"beta\"\nmode = \"async\"\n"));
        assert_eq!(with_key(TEXT, None, "name", "db").unwrap(), TEXT);
        assert_eq!(with_key(TEXT, Some("gamma"), "mode", "async"), None);
    }

    #[test]
    fn what_is_not_in_one_line_is_left_to_people() {
        let text = "name = \"db\"\nremoved = [\n  1,\n]\n";
        assert_eq!(with_key(text, None, "removed", "[2]"), None);
        // A value never ends its line.
        let odd = with_key(text, None, "name", "a\nb = 1").unwrap();
        assert!(odd.starts_with("name = \"a\\nb = 1\"\n") || odd.contains("\"\"\""), "{odd}");
    }
}

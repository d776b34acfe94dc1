//! What is kept of the runs: what each test came to against both servers, why ours fails where
//! smbd passes, and the page that says so.
//!
//! ```text
//!  smbtorture-verdicts.txt (a run writes it) --+
//!                                              +--> the tables of docs/interop.md
//!  smbtorture-gaps.txt (a person writes it) ---+
//! ```
//!
//! The tables stand between marks and are written by the command alone; `cargo xtask tidy` finds
//! out when they no longer say what the files say, and when a gap has no reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::Verdict;
use crate::failure::Failure;
use crate::peer::Against;
use crate::workspace;

/// What every test came to.
#[derive(Debug, Default)]
pub(super) struct Record(BTreeMap<String, Row>);

/// One test; `None` where it has not been run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Row {
    ours: Option<Verdict>,
    smbd: Option<Verdict>,
}

impl Row {
    /// Whether smbd passes and ours does not.
    fn is_gap(self) -> bool {
        self.smbd == Some(Verdict::Pass) && self.ours != Some(Verdict::Pass)
    }
}

impl Record {
    /// Reads what was kept.
    pub(super) fn read() -> Result<Self, Failure> {
        let text = read(VERDICTS)?;
        let rows = entries(&text).map(parse_row);
        Ok(Self(rows.collect::<Option<_>>().ok_or_else(|| unreadable(VERDICTS))?))
    }

    /// Takes in what a run found.
    pub(super) fn learn(&mut self, against: Against, results: &BTreeMap<String, Verdict>) {
        for (name, verdict) in results {
            let row = self.0.entry(name.clone()).or_default();
            match against {
                Against::Landfast => row.ours = Some(*verdict),
                Against::Smbd => row.smbd = Some(*verdict),
            }
        }
    }

    /// Writes the verdicts, and the page anew.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let mut text = VERDICTS_HEADING.to_owned();
        for (name, row) in &self.0 {
            let _ = writeln!(text, "{} {} {name}", word(row.ours), word(row.smbd));
        }
        write(VERDICTS, &text)?;
        let page = read(PAGE)?;
        let page = self.on_page(&page, &reasons()?).ok_or_else(|| unreadable(PAGE))?;
        write(PAGE, &page)
    }

    /// The page with its tables as they should be; `None` if it has no place for them.
    fn on_page(&self, page: &str, reasons: &[Reason]) -> Option<String> {
        let page = between(page, "smbtorture suites", &self.suites())?;
        between(&page, "smbtorture gaps", &self.gaps(reasons))
    }

    // Two suites a line: there are some sixty.
    fn suites(&self) -> String {
        let mut suites: BTreeMap<&str, [[usize; 3]; 2]> = BTreeMap::new();
        for (name, row) in &self.0 {
            let counts = suites.entry(suite(name)).or_default();
            count(&mut counts[0], row.ours);
            count(&mut counts[1], row.smbd);
        }
        let mut total = [[0; 3]; 2];
        for counts in suites.values() {
            for (sum, found) in total.iter_mut().flatten().zip(counts.iter().flatten()) {
                *sum += found;
            }
        }
        let cells = |name: &str, counts: &[[usize; 3]; 2]| {
            let [ours, smbd] = counts.map(|[pass, fail, skip]| format!("{pass} / {fail} / {skip}"));
            format!("{name} | {ours} | {smbd}")
        };
        let mut cells: Vec<String> =
            suites.iter().map(|(name, found)| cells(name, found)).collect();
        cells.push(cells_of_all(&total));
        let half = cells.len().div_ceil(2);
        let mut out = String::from(SUITES_HEADING);
        for line in 0..half {
            let right = cells.get(half + line).map_or(" | | ", String::as_str);
            let _ = writeln!(out, "| {} | | {right} |", cells[line]);
        }
        out
    }

    fn gaps(&self, reasons: &[Reason]) -> String {
        let mut out = String::from(GAPS_HEADING);
        for reason in reasons {
            let count = self.gap_names().filter(|name| reason.covers(name)).count();
            let shown = reason.tests.strip_prefix("smb2.").unwrap_or(&reason.tests);
            let _ = writeln!(out, "| `{shown}` | {count} | {} |", reason.why);
        }
        out
    }

    fn gap_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, row)| row.is_gap()).map(|(name, _)| name.as_str())
    }
}

/// What no longer holds of the files and the page.
pub(crate) fn faults() -> Result<Vec<String>, Failure> {
    let (record, reasons) = (Record::read()?, reasons()?);
    let mut faults = unexplained(&record, &reasons);
    let page = read(PAGE)?;
    if record.on_page(&page, &reasons).is_none_or(|wanted| wanted != page) {
        faults.push(format!(
            "{PAGE} does not say what {VERDICTS} and {GAPS} say: run `cargo xtask smbtorture \
             --page`"
        ));
    }
    Ok(faults)
}

/// Writes the page anew, from what is kept.
pub(super) fn write_page() -> Result<(), Failure> {
    Record::read()?.write()
}

fn unexplained(record: &Record, reasons: &[Reason]) -> Vec<String> {
    let mut faults: Vec<String> = record
        .gap_names()
        .filter(|name| !reasons.iter().any(|reason| reason.covers(name)))
        .map(|name| format!("{GAPS} does not say why {name} fails where smbd passes"))
        .collect();
    let idle = |reason: &&Reason| !record.gap_names().any(|name| reason.covers(name));
    faults.extend(
        reasons
            .iter()
            .filter(idle)
            .map(|reason| format!("{GAPS}: {} is no gap any more, or never was one", reason.tests)),
    );
    faults
}

/// Why some tests fail where smbd passes.
#[derive(Debug, Eq, PartialEq)]
struct Reason {
    /// A name, or the beginning of names with a star behind it.
    tests: String,
    why: String,
}

impl Reason {
    fn covers(&self, name: &str) -> bool {
        match self.tests.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.tests,
        }
    }
}

fn reasons() -> Result<Vec<Reason>, Failure> {
    let text = read(GAPS)?;
    let parsed = entries(&text).map(|line| {
        let (tests, why) = line.split_once(": ")?;
        Some(Reason { tests: tests.to_owned(), why: why.to_owned() })
    });
    parsed.collect::<Option<_>>().ok_or_else(|| unreadable(GAPS))
}

fn parse_row(line: &str) -> Option<(String, Row)> {
    let (ours, rest) = line.split_once(' ')?;
    let (smbd, name) = rest.split_once(' ')?;
    Some((name.to_owned(), Row { ours: verdict(ours)?, smbd: verdict(smbd)? }))
}

fn verdict(word: &str) -> Option<Option<Verdict>> {
    Some(match word {
        "pass" => Some(Verdict::Pass),
        "fail" => Some(Verdict::Fail),
        "slow" => Some(Verdict::Timeout),
        "skip" => Some(Verdict::Skip),
        "-" => None,
        _ => return None,
    })
}

fn word(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail) => "fail",
        Some(Verdict::Timeout) => "slow",
        Some(Verdict::Skip) => "skip",
        None => "-",
    }
}

fn count(counts: &mut [usize; 3], verdict: Option<Verdict>) {
    match verdict {
        Some(Verdict::Pass) => counts[0] += 1,
        Some(Verdict::Fail | Verdict::Timeout) => counts[1] += 1,
        Some(Verdict::Skip) => counts[2] += 1,
        None => {}
    }
}

fn cells_of_all(total: &[[usize; 3]; 2]) -> String {
    let [ours, smbd] = total.map(|[pass, fail, skip]| format!("**{pass}** / {fail} / {skip}"));
    format!("all | {ours} | {smbd}")
}

/// `smb2.lock` of `smb2.lock.auto-unlock`, without its first part.
fn suite(name: &str) -> &str {
    let name = name.strip_prefix("smb2.").unwrap_or(name);
    name.split_once('.').map_or(name, |(suite, _)| suite)
}

/// Replaces what stands between two marks on lines of their own.
fn between(page: &str, mark: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {mark} -->\n"), format!("<!-- end {mark} -->\n"));
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}\n{text}\n{end}{tail}"))
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn path_of(name: &str) -> PathBuf {
    workspace::root().join(name)
}

fn read(name: &str) -> Result<String, Failure> {
    let path = path_of(name);
    fs::read_to_string(&path).map_err(Failure::io("reading", &path))
}

fn write(name: &str, text: &str) -> Result<(), Failure> {
    let path = path_of(name);
    fs::write(&path, text).map_err(Failure::io("writing", &path))
}

fn unreadable(name: &str) -> Failure {
    Failure::new(format!("{name} is not as this tool writes it")).remedy("git checkout it")
}

const VERDICTS: &str = "tests/interop/smbtorture-verdicts.txt";
const GAPS: &str = "tests/interop/smbtorture-gaps.txt";
const PAGE: &str = "docs/interop.md";

const VERDICTS_HEADING: &str = "\
# What each test of Samba's smbtorture came to: against ours, against smbd. Written by `cargo xtask
# smbtorture --update` and `cargo xtask smbtorture --against smbd --update`. slow: not over in time.
";

const SUITES_HEADING: &str = "\
| suite | ours: pass / fail / skip | smbd | | suite | ours: pass / fail / skip | smbd |
|---|---|---|---|---|---|---|
";

const GAPS_HEADING: &str = "\
| test | tests | why ours fails where smbd passes |
|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let lines = ["pass fail smb2.lock.a", "fail pass smb2.lock.b", "skip pass smb2.connect"];
        Record(lines.into_iter().map(|line| parse_row(line).unwrap()).collect())
    }

    fn reason(tests: &str) -> Reason {
        Reason { tests: tests.to_owned(), why: "because".to_owned() }
    }

    #[test]
    fn each_gap_needs_a_reason_and_each_reason_a_gap() {
        let faults = unexplained(&record(), &[reason("smb2.lock.*"), reason("smb2.lock.a")]);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("smb2.connect") && faults[1].contains("smb2.lock.a"));
        assert!(
            unexplained(&record(), &[reason("smb2.lock.b"), reason("smb2.connect")]).is_empty()
        );
    }

    #[test]
    fn the_tables_stand_between_their_marks_and_nothing_else_changes() {
        let page = "a\n<!-- begin smbtorture suites -->\nold\n<!-- end smbtorture suites -->\nb\n\
                    <!-- begin smbtorture gaps -->\n<!-- end smbtorture gaps -->\nc\n";
        let reasons = [reason("smb2.*")];
        let first = record().on_page(page, &reasons).unwrap();
        assert!(first.starts_with("a\n") && first.ends_with("c\n") && !first.contains("old"));
        assert!(first.contains("| lock | 1 / 1 / 0 | 1 / 1 / 0 |"), "{first}");
        assert!(first.contains("| all | **1** / 1 / 1 | **2** / 1 / 0 |"), "{first}");
        assert!(first.contains("| `*` | 2 | because |"), "{first}");
        assert_eq!(record().on_page(&first, &reasons).unwrap(), first);
        assert_eq!(record().on_page("no marks", &reasons), None);
    }

    #[test]
    fn a_run_replaces_what_it_has_run_and_nothing_else() {
        let mut record = record();
        let found = BTreeMap::from([("smb2.lock.b".to_owned(), Verdict::Pass)]);
        record.learn(Against::Landfast, &found);
        assert_eq!(record.gap_names().collect::<Vec<_>>(), ["smb2.connect"]);
    }
}

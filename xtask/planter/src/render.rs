//! A file with its mutants planted, each behind its switch.
//!
//! ```text
//!   a < b    (if is(7) { (a) <= (b) } else { (a) < (b) })     what a switch turns on has no switches in it:
//!   { .. }   { if is(8) { return 0; } .. }                    one mutant is on at a time
//! ```

use std::ops::Range;

use crate::sites::{Kind, Site};

/// A file with planted mutants.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    pub(crate) text: String,
    /// What is there for each mutant, in bytes of the text.
    pub(crate) regions: Vec<(u32, Range<usize>)>,
    /// The places with all their mutants.
    pub(crate) places: Vec<Place>,
}

/// A place of planted text.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) ids: Vec<u32>,
    pub(crate) range: Range<usize>,
    pub(crate) is_body: bool,
    pub(crate) is_arm: bool,
}

/// Plants the mutants of `sites`, which are in order.
pub(crate) fn render(source: &str, sites: &[Site]) -> Planted {
    let mut writer = Writer { source, sites, planted: Planted::default() };
    writer.copy(0..source.len(), 0);
    writer.planted
}

struct Writer<'a> {
    source: &'a str,
    sites: &'a [Site],
    planted: Planted,
}

impl Writer<'_> {
    // Copies a range, with those of its places whose number is `from` or higher.
    fn copy(&mut self, range: Range<usize>, from: usize) {
        let mut at = range.start;
        for index in from..self.sites.len() {
            let site = self.sites[index].range.clone();
            if site.start < at || site.end > range.end {
                continue;
            }
            self.raw(at..site.start);
            self.site(index);
            at = site.end;
        }
        self.raw(at..range.end);
    }

    fn raw(&mut self, range: Range<usize>) {
        self.push(&self.source[range]);
    }

    fn push(&mut self, text: &str) {
        self.planted.text.push_str(text);
    }

    fn site(&mut self, index: usize) {
        let Site { range, kind, mutants } = &self.sites[index];
        let begin = self.planted.text.len();
        match kind {
            Kind::Body => {
                for (id, value) in mutants {
                    self.switched(*id, &format!("if {} {{ return {value}; }} ", is(*id)));
                }
            }
            Kind::Arm => {
                for (id, _) in mutants {
                    self.switched(*id, &format!(" if !{}", is(*id)));
                }
            }
            Kind::Binary { left, right } => {
                let (l, r) = (&self.source[left.clone()], &self.source[right.clone()]);
                self.push("(");
                for (id, operator) in mutants {
                    let text = format!("if {} {{ ({l}) {operator} ({r}) }} else ", is(*id));
                    self.switched(*id, &text);
                }
                self.push("{ (");
                self.copy(left.clone(), index + 1);
                self.push(")");
                self.raw(left.end..right.start);
                self.push("(");
                self.copy(right.clone(), index + 1);
                self.push(") })");
            }
            Kind::Unary { operand } => {
                self.push("(");
                for (id, _) in mutants {
                    let text = &self.source[operand.clone()];
                    self.switched(*id, &format!("if {} {{ ({text}) }} else ", is(*id)));
                }
                self.push("{ ");
                self.raw(range.start..operand.start);
                self.copy(operand.clone(), index + 1);
                self.push(" })");
            }
            Kind::Guard => {
                self.chosen("", mutants.iter().map(|(id, value)| (*id, value.as_str())), index)
            }
            Kind::Field { base, label } => {
                self.chosen(label, mutants.iter().map(|(id, _)| (*id, base.as_str())), index);
            }
        }
        let ids = mutants.iter().map(|(id, _)| *id).collect();
        let range = begin..self.planted.text.len();
        let (is_body, is_arm) = (matches!(kind, Kind::Body), matches!(kind, Kind::Arm));
        self.planted.places.push(Place { ids, range, is_body, is_arm });
    }

    fn chosen<'b>(
        &mut self,
        label: &str,
        values: impl Iterator<Item = (u32, &'b str)>,
        index: usize,
    ) {
        self.push(label);
        self.push("(");
        for (id, value) in values {
            self.switched(id, &format!("if {} {{ {value} }} else ", is(id)));
        }
        self.push("{ ");
        self.copy(self.sites[index].range.clone(), index + 1);
        self.push(" })");
    }

    fn switched(&mut self, id: u32, text: &str) {
        let begin = self.planted.text.len();
        self.push(text);
        self.planted.regions.push((id, begin..self.planted.text.len()));
    }
}

fn is(id: u32) -> String {
    format!("::mutant_switch::is({id})")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::sites;

    fn planted(source: &str, wanted: &[(&str, &str, &str)]) -> String {
        let mut ids = 0;
        let mut map = HashMap::new();
        for (genre, at, replacement) in wanted {
            ids += 1;
            let key = ((*genre).to_owned(), source.find(at).unwrap());
            map.entry(key).or_insert_with(Vec::new).push((ids, (*replacement).to_owned()));
        }
        let sites = sites::find(source, &mut map).unwrap();
        assert!(map.is_empty(), "{map:?}");
        render(source, &sites).text.replace("::mutant_switch::", "")
    }

    #[test]
    fn operators_of_operators_are_switched_in_what_no_switch_turned_on() {
        let source = "fn f() -> bool { a < b && !c }";
        let wanted = [
            ("BinaryOperator", "&&", "||"),
            ("BinaryOperator", "<", "=="),
            ("UnaryOperator", "!", ""),
        ];
        assert_eq!(
            planted(source, &wanted),
            "fn f() -> bool { (if is(1) { (a < b) || (!c) } else { ((if is(2) { (a) == (b) } else { (a) < (b) })) && \
             ((if is(3) { (c) } else { !c })) }) }"
        );
    }

    #[test]
    fn bodies_arms_guards_and_fields_are_switched() {
        let source = "fn f() -> T { match x { A => 1, B if b > c => T { n: 2, ..y }, _ => 3 } }";
        let wanted = [
            ("FnValue", "match", "4"),
            ("MatchArm", "A =>", ""),
            ("MatchArmGuard", "b > c", "true"),
            ("BinaryOperator", "> c", "<"),
            ("StructField", "n: 2", ""),
        ];
        assert_eq!(
            planted(source, &wanted),
            "fn f() -> T { if is(1) { return 4; } match x { A if !is(2) => 1, B if (if is(3) { true } else { \
             (if is(4) { (b) < (c) } else { (b) > (c) }) }) => T { n: (if is(5) { y.n } else { 2 }), ..y }, _ => 3 } }"
        );
    }

    #[test]
    fn a_chain_with_let_keeps_its_operator() {
        let source = "fn f() { if let A = b && c == d {} }";
        let mut map = HashMap::from([(
            ("BinaryOperator".to_owned(), source.find("&&").unwrap()),
            Vec::new(),
        )]);
        assert!(sites::find(source, &mut map).unwrap().is_empty());
        assert_eq!(map.len(), 1);
    }
}

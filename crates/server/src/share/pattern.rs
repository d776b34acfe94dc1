//! Wildcard patterns of directory enumeration, and the case folding names are compared with.
//!
//! ```text
//!  *  any characters            ?  exactly one character
//!  <  any characters up to the  >  one character, or none before a period or at the end
//!     last period (DOS_STAR)    "  a period, or nothing at the end (DOS_DOT)
//! ```
//!
//! The pattern runs as a set of states over the name, so its cost is at most the product of the
//! two lengths: a peer cannot write a pattern that backtracks forever.
//!
//! Spec: MS-FSA §2.1.4.4 (matching), §2.1.4.3 (upper-casing).

/// A compiled search pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    tokens: Vec<Token>,
}

impl Pattern {
    /// Compiles what a QUERY_DIRECTORY asks for. The empty pattern means everything.
    ///
    /// `None` when it is longer than any name could be.
    pub fn parse(wire: &str) -> Option<Self> {
        let wire = if wire.is_empty() { "*" } else { wire };
        if wire.chars().count() > PATTERN_CHARS_MAX {
            return None;
        }
        Some(Self { tokens: wire.chars().map(Token::from_char).collect() })
    }

    /// The pattern that everything matches.
    pub fn all() -> Self {
        Self { tokens: vec![Token::Star] }
    }

    /// Whether every name matches.
    pub fn is_all(&self) -> bool {
        self.tokens == [Token::Star]
    }

    /// The one name this pattern can match, when it holds no wildcard.
    pub fn literal(&self) -> Option<String> {
        self.tokens
            .iter()
            .map(|token| match token {
                Token::Literal { written, .. } => Some(*written),
                _ => None,
            })
            .collect()
    }

    /// Whether `name` matches, ignoring case.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let last_period = name.rfind('.');
        let mut states = vec![false; self.tokens.len() + 1];
        states[0] = true;
        for (index, c) in name.char_indices() {
            self.expand(&mut states, Some(c));
            states = self.step(&states, c, last_period.is_some_and(|last| index == last));
        }
        self.expand(&mut states, None);
        states[self.tokens.len()]
    }

    // Follows the tokens that can match nothing at this point.
    fn expand(&self, states: &mut [bool], next: Option<char>) {
        for (index, token) in self.tokens.iter().enumerate() {
            let skips = match token {
                Token::Star | Token::DosStar => true,
                Token::DosQuestion => next.is_none_or(|c| c == '.'),
                Token::DosDot => next.is_none(),
                Token::Question | Token::Literal { .. } => false,
            };
            if states[index] && skips {
                states[index + 1] = true;
            }
        }
    }

    // Consumes one character of the name.
    fn step(&self, states: &[bool], c: char, is_last_period: bool) -> Vec<bool> {
        let mut next = vec![false; states.len()];
        for (index, token) in self.tokens.iter().enumerate().filter(|(index, _)| states[*index]) {
            match token {
                Token::Star => next[index] = true,
                // Everything but the final period stays inside a DOS_STAR.
                Token::DosStar => next[index] |= !is_last_period,
                Token::Question => next[index + 1] = true,
                Token::DosQuestion => next[index + 1] |= c != '.',
                Token::DosDot => next[index + 1] |= c == '.',
                Token::Literal { folded, .. } => next[index + 1] |= *folded == upcase(c),
            }
        }
        next
    }
}

/// One character as names are compared: its upper-case form where that is a single character.
pub(super) fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

/// Whether two names are the same name to a Windows client.
pub(super) fn same_name(left: &str, right: &str) -> bool {
    left.chars().map(upcase).eq(right.chars().map(upcase))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Token {
    Star,
    Question,
    DosStar,
    DosQuestion,
    DosDot,
    Literal { written: char, folded: char },
}

impl Token {
    fn from_char(c: char) -> Self {
        match c {
            '*' => Self::Star,
            '?' => Self::Question,
            '<' => Self::DosStar,
            '>' => Self::DosQuestion,
            '"' => Self::DosDot,
            written => Self::Literal { written, folded: upcase(written) },
        }
    }
}

/// A pattern longer than this can match no name of 255 characters in a useful way.
const PATTERN_CHARS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn plain_wildcards_match_as_users_expect() {
        assert!(matches("*", "anything.at.all"));
        assert!(matches("*.TXT", "notes.txt"));
        assert!(!matches("*.txt", "notes.txt.bak"));
        assert!(matches("a?c", "ABC"));
        assert!(!matches("a?c", "ac"));
        assert!(matches("", "everything"));
    }

    #[test]
    fn dos_wildcards_follow_ms_fsa() {
        assert!(matches("<.txt", "a.b.txt"), "DOS_STAR runs to the last period");
        assert!(!matches("<b", "a.b"), "and not past it");
        assert!(matches("file>>>.c", "file1.c"), "DOS_QM is nothing before a period");
        assert!(matches("file>>>", "file"));
        assert!(matches("readme\"", "readme"), "DOS_DOT is nothing at the end");
        assert!(matches("<\"*", "readme"), "what cmd.exe sends for *.*");
        assert!(matches("<\"*", "a.b"));
    }

    #[test]
    fn case_is_folded_beyond_ascii_one_character_to_one() {
        assert!(same_name("Ärger.TXT", "äRGER.txt"));
        assert!(!same_name("straße", "STRASSE"));
    }

    #[test]
    fn a_hostile_pattern_costs_no_more_than_the_product_of_lengths() {
        let pattern = "*a".repeat(500);
        assert!(!matches(&pattern, &"a".repeat(255)));
    }

    #[test]
    fn a_pattern_without_wildcards_is_a_name() {
        assert_eq!(Pattern::parse("Foo.txt").unwrap().literal().as_deref(), Some("Foo.txt"));
        assert_eq!(Pattern::parse("Foo*").unwrap().literal(), None);
    }
}

//! Wildcard patterns of directory enumeration, and the case folding for comparing names.
//!
//! ```text
//!  *  any characters            ?  exactly one character
//!  <  any characters up to the  >  one character, or none before a period or at the end
//!     last period (DOS_STAR)    "  a period, or nothing at the end (DOS_DOT)
//! ```
//!
//! The pattern runs as a set of states over the name, a bit for each: a character of the name costs some
//! operations on at most four words, whatever the pattern is. The table for that is made for a request
//! ([`Pattern::matcher`]); a handle keeps only the pattern.
//!
//! Spec: MS-FSA §2.1.4.4 (matching), §2.1.4.3 (upper-casing).

use super::limits::PATTERN_CHARS_MAX;

/// A search pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    tokens: Box<[Token]>,
}

impl Pattern {
    /// Parses the pattern of a QUERY_DIRECTORY. The empty pattern matches everything.
    ///
    /// `None` if the pattern is longer than any name.
    pub fn parse(wire: &str) -> Option<Self> {
        let wire = if wire.is_empty() { "*" } else { wire };
        if wire.chars().count() > PATTERN_CHARS_MAX {
            return None;
        }
        Some(Self { tokens: wire.chars().map(Token::from_char).collect() })
    }

    /// The pattern that everything matches.
    pub fn all() -> Self {
        Self { tokens: [Token::Star].into() }
    }

    /// Whether every name matches.
    pub fn is_all(&self) -> bool {
        *self.tokens == [Token::Star]
    }

    /// The one name this pattern can match, when it holds no wildcard.
    pub fn literal(&self) -> Option<String> {
        self.tokens
            .iter()
            .map(|token| match token {
                Token::Literal(written) => Some(*written),
                _ => None,
            })
            .collect()
    }

    /// Whether `name` matches, ignoring case.
    pub fn matches(&self, name: &str) -> bool {
        self.matcher().matches(name)
    }

    /// A matcher, for many names.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self)
    }
}

/// A pattern prepared for many names.
#[derive(Clone, Debug)]
pub struct Matcher {
    is_all: bool,
    /// The state behind the last token.
    end: usize,
    star: Set,
    dos_star: Set,
    question: Set,
    dos_question: Set,
    dos_dot: Set,
    /// Each character of the pattern in its folded form, in order, and its places.
    literals: Vec<(char, Set)>,
}

impl Matcher {
    fn new(pattern: &Pattern) -> Self {
        let at = |wanted: Token| {
            let mut set = Set::default();
            let found = pattern.tokens.iter().enumerate().filter(|(_, token)| **token == wanted);
            found.for_each(|(index, _)| set.add(index));
            set
        };
        let mut literals: Vec<(char, Set)> = Vec::new();
        for (index, token) in pattern.tokens.iter().enumerate() {
            let Token::Literal(written) = token else { continue };
            let folded = upcase(*written);
            let place = literals.binary_search_by_key(&folded, |(c, _)| *c);
            let place = place.unwrap_or_else(|place| {
                literals.insert(place, (folded, Set::default()));
                place
            });
            literals[place].1.add(index);
        }
        Self {
            is_all: pattern.is_all(),
            end: pattern.tokens.len(),
            star: at(Token::Star),
            dos_star: at(Token::DosStar),
            question: at(Token::Question),
            dos_question: at(Token::DosQuestion),
            dos_dot: at(Token::DosDot),
            literals,
        }
    }

    /// Whether `name` matches, ignoring case.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_all {
            return true;
        }
        let last_period = name.rfind('.');
        let mut states = Set::default();
        states.add(0);
        for (index, c) in name.char_indices() {
            let states_here = self.expanded(states, Some(c));
            states = self.step(states_here, c, last_period == Some(index));
            if states.is_empty() {
                return false;
            }
        }
        self.expanded(states, None).has(self.end)
    }

    // Adds the states behind tokens that can match nothing at this point.
    fn expanded(&self, states: Set, next: Option<char>) -> Set {
        let mut skips = self.star.or(self.dos_star);
        if next.is_none_or(|c| c == '.') {
            skips = skips.or(self.dos_question);
        }
        if next.is_none() {
            skips = skips.or(self.dos_dot);
        }
        states.spread_over(skips)
    }

    // Consumes one character of the name.
    fn step(&self, states: Set, c: char, is_last_period: bool) -> Set {
        // Every character but the final period stays inside a DOS_STAR.
        let stays = if is_last_period { self.star } else { self.star.or(self.dos_star) };
        let mut takes = self.question;
        takes = takes.or(if c == '.' { self.dos_dot } else { self.dos_question });
        let folded = upcase(c);
        if let Ok(place) = self.literals.binary_search_by_key(&folded, |(c, _)| *c) {
            takes = takes.or(self.literals[place].1);
        }
        states.and(stays).or(states.and(takes).moved_on())
    }
}

/// A set of states: one for each token of the longest pattern, and one behind the last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Set([u64; WORDS]);

impl Set {
    fn add(&mut self, state: usize) {
        self.0[state / 64] |= 1 << (state % 64);
    }

    fn has(&self, state: usize) -> bool {
        self.0[state / 64] & 1 << (state % 64) != 0
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Each state becomes the next one.
    fn moved_on(self) -> Self {
        let mut carry = 0;
        Self(self.0.map(|word| {
            let moved = word << 1 | carry;
            carry = word >> 63;
            moved
        }))
    }

    /// Adds to each state of `skips` in the set the next state, also to added ones: a sum carries from the
    /// first state of a run of `skips` that is in the set to the state behind the run.
    fn spread_over(self, skips: Self) -> Self {
        let begun = self.and(skips);
        let mut carry = false;
        let sum: [u64; WORDS] = std::array::from_fn(|word| {
            let (sum, first) = skips.0[word].overflowing_add(begun.0[word]);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            carry = first || second;
            sum
        });
        // The sum changes a bit of a run above its first begun state, or the bit is begun itself; so is the bit
        // behind.
        let reached: [u64; WORDS] =
            std::array::from_fn(|word| (sum[word] ^ skips.0[word]) | begun.0[word]);
        let reached = Self(reached);
        self.or(reached)
    }
}

/// One character in its folded form: its upper-case form if that is a single character.
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

/// A name in upper case: two names that are equal to a Windows client have the same form.
pub fn folded(name: &str) -> String {
    name.chars().map(upcase).collect()
}

/// Whether two names are equal to a Windows client.
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
    /// A literal character.
    Literal(char),
}

impl Token {
    fn from_char(c: char) -> Self {
        match c {
            '*' => Self::Star,
            '?' => Self::Question,
            '<' => Self::DosStar,
            '>' => Self::DosQuestion,
            '"' => Self::DosDot,
            written => Self::Literal(written),
        }
    }
}

const WORDS: usize = (PATTERN_CHARS_MAX + 1).div_ceil(64);

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
    fn a_pattern_longer_than_any_name_is_refused() {
        assert!(Pattern::parse(&"a".repeat(PATTERN_CHARS_MAX)).is_some());
        assert!(Pattern::parse(&"a".repeat(PATTERN_CHARS_MAX + 1)).is_none());
    }

    #[test]
    fn the_longest_patterns_are_followed_to_their_last_state() {
        let name = "a".repeat(127);
        assert!(matches(&format!("{}a", "*a".repeat(127 - 1)), &name));
        assert!(!matches(&format!("{}b", "*?".repeat(127)), &name));
        assert!(matches(&"*".repeat(255), &name), "all states at once");
        assert!(matches(&">".repeat(255), &name));
        assert!(matches(&"a".repeat(255), &"A".repeat(255)));
        assert!(!matches(&"a".repeat(255), &"A".repeat(254)));
    }

    // The rules one by one, for comparison with the sets.
    fn by_the_rules(tokens: &[Token], name: &[char], place: usize) -> bool {
        let last_period = name.iter().rposition(|c| *c == '.');
        let Some((token, rest)) = tokens.split_first() else { return place == name.len() };
        let next = name.get(place).copied();
        let skip = || by_the_rules(rest, name, place);
        let take = || by_the_rules(rest, name, place + 1);
        match token {
            Token::Star => skip() || (next.is_some() && by_the_rules(tokens, name, place + 1)),
            Token::DosStar => {
                let stays = next.is_some() && last_period != Some(place);
                skip() || (stays && by_the_rules(tokens, name, place + 1))
            }
            Token::Question => next.is_some() && take(),
            Token::DosQuestion => {
                (next.is_none_or(|c| c == '.') && skip())
                    || (next.is_some_and(|c| c != '.') && take())
            }
            Token::DosDot => (next.is_none() && skip()) || (next == Some('.') && take()),
            Token::Literal(c) => next == Some(*c) && take(),
        }
    }

    #[test]
    fn sets_of_states_match_the_names_that_the_rules_match() {
        let letters = ['*', '?', '<', '>', '"', 'A', '.'];
        let texts = |letters: &[char], len: u32| -> Vec<Vec<char>> {
            let count = letters.len().pow(len);
            let text = |mut number: usize| {
                let mut letter = || {
                    let letter = letters[number % letters.len()];
                    number /= letters.len();
                    letter
                };
                (0..len).map(|_| letter()).collect()
            };
            (0..count).map(text).collect()
        };
        let names: Vec<_> = (0..5).flat_map(|len| texts(&['A', '.'], len)).collect();
        for wire in (1..5).flat_map(|len| texts(&letters, len)) {
            let wire: String = wire.into_iter().collect();
            let pattern = Pattern::parse(&wire).unwrap();
            let matcher = pattern.matcher();
            for name in &names {
                let expected = by_the_rules(&pattern.tokens, name, 0);
                let name: String = name.iter().collect();
                assert_eq!(matcher.matches(&name), expected, "{wire} and {name:?}");
            }
        }
    }

    #[test]
    fn a_pattern_without_wildcards_is_a_name() {
        assert_eq!(Pattern::parse("Foo.txt").unwrap().literal().as_deref(), Some("Foo.txt"));
        assert_eq!(Pattern::parse("Foo*").unwrap().literal(), None);
    }
}

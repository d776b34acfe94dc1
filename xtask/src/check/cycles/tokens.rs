//! Rust source as words and marks, without comments and literals: as much of the grammar as imports need.

use std::iter::Peekable;
use std::str::CharIndices;

/// A piece of source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Token<'t> {
    /// An identifier, a keyword or a number.
    Word(&'t str),
    /// `::`
    Path,
    /// Any other character.
    Mark(char),
}

/// The tokens of a file.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut scanner = Scanner { text, chars: text.char_indices().peekable() };
    std::iter::from_fn(|| scanner.token()).collect()
}

struct Scanner<'t> {
    text: &'t str,
    chars: Peekable<CharIndices<'t>>,
}

impl<'t> Scanner<'t> {
    fn token(&mut self) -> Option<Token<'t>> {
        loop {
            let (at, char) = self.chars.next()?;
            match char {
                _ if char.is_whitespace() => {}
                '/' if self.is_next('/') => self.skip_until(|c| c == '\n'),
                '/' if self.is_next('*') => self.skip_comment(),
                '"' => self.skip_quoted('"'),
                '\'' => self.skip_character(),
                ':' if self.is_next(':') => {
                    self.chars.next();
                    return Some(Token::Path);
                }
                _ if is_word(char) => {
                    let word = self.word(at);
                    if !self.begins_literal(word) {
                        return Some(Token::Word(word));
                    }
                }
                other => return Some(Token::Mark(other)),
            }
        }
    }

    fn word(&mut self, start: usize) -> &'t str {
        while self.chars.next_if(|(_, c)| is_word(*c)).is_some() {}
        let end = self.chars.peek().map_or(self.text.len(), |(at, _)| *at);
        &self.text[start..end]
    }

    // Skips the literal after a prefix as in b"x" and r#"x"#. The prefix of a raw identifier is left out.
    fn begins_literal(&mut self, word: &str) -> bool {
        let is_raw = matches!(word, "r" | "br" | "cr");
        if is_raw && (self.is_next('#') || self.is_next('"')) {
            self.skip_raw();
            return true;
        }
        let quote = match word {
            "b" | "c" if self.is_next('"') => '"',
            "b" if self.is_next('\'') => '\'',
            _ => return false,
        };
        self.chars.next();
        self.skip_quoted(quote);
        true
    }

    fn skip_raw(&mut self) {
        let mut fence = 0;
        while self.chars.next_if(|(_, c)| *c == '#').is_some() {
            fence += 1;
        }
        if !self.is_next('"') {
            return;
        }
        self.chars.next();
        loop {
            self.skip_until(|c| c == '"');
            let closes = (0..fence).all(|_| self.chars.next_if(|(_, c)| *c == '#').is_some());
            if closes || self.chars.peek().is_none() {
                return;
            }
        }
    }

    fn skip_quoted(&mut self, quote: char) {
        while let Some((_, char)) = self.chars.next() {
            match char {
                '\\' => _ = self.chars.next(),
                _ if char == quote => return,
                _ => {}
            }
        }
    }

    // 'x' and '\n' are characters; 'x is a lifetime, whose name is left out, too.
    fn skip_character(&mut self) {
        let Some((_, char)) = self.chars.next() else { return };
        if char == '\\' {
            self.chars.next();
            self.skip_quoted('\'');
        } else if self.is_next('\'') {
            self.chars.next();
        } else {
            while self.chars.next_if(|(_, c)| is_word(*c)).is_some() {}
        }
    }

    fn skip_comment(&mut self) {
        let (mut depth, mut before) = (1, ' ');
        self.chars.next();
        for (_, char) in self.chars.by_ref() {
            match (before, char) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    before = char;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
            before = ' ';
        }
    }

    fn skip_until(&mut self, is_end: impl Fn(char) -> bool) {
        let _ = self.chars.find(|(_, c)| is_end(*c));
    }

    fn is_next(&mut self, wanted: char) -> bool {
        self.chars.peek().is_some_and(|(_, c)| *c == wanted)
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let word = |token| match token {
            Token::Word(word) => Some(word),
            Token::Path | Token::Mark(_) => None,
        };
        tokens(text).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        let text = r####"
            a // no "no
            /* no /* no */ no **/ b /**/
            "no \" no" c 'n' d '\'' e '"' f b'n' g b"no" h r#"no " no"# i r"no\" j c"no" k
        "####;
        assert_eq!(words(text), ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]);
    }

    #[test]
    fn names_of_lifetimes_are_no_words_and_raw_names_are() {
        assert_eq!(words("fn a<'no>(b: &'no str) -> r#type"), ["fn", "a", "b", "str", "type"]);
    }

    #[test]
    fn a_path_is_one_token_between_its_words() {
        let expected = [Token::Word("a"), Token::Path, Token::Word("b"), Token::Mark(':')];
        assert_eq!(tokens("a::b:"), expected);
    }
}

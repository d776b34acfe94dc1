//! What a file says of modules: its children, its imports, the paths in its code. Code of tests is left out.

use std::collections::BTreeSet;
use std::iter::Peekable;

use super::tokens::{Token, tokens};

/// One module, of a file or in braces.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// The modules that have files of their own.
    pub(super) files: Vec<String>,
    /// The modules in braces.
    pub(super) inline: Vec<(String, Self)>,
    pub(super) imports: Vec<Import>,
    /// Paths of two words and more outside of imports.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// What is defined here.
    pub(super) items: BTreeSet<String>,
    /// The words outside of imports.
    words: BTreeSet<String>,
    is_test: bool,
}

/// One name that a `use` brings, or all names of a module.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// `None` for `*`.
    pub(super) name: Option<String>,
    is_public: bool,
}

impl Scope {
    /// Reads the module of a file.
    pub(super) fn parse(text: &str) -> Self {
        let mut parser = Parser { rest: tokens(text).into_iter().peekable() };
        let mut scope = Self::default();
        parser.scope(&mut scope);
        if scope.is_test { Self::default() } else { scope }
    }

    /// Whether the module itself needs what it imports. A module that only passes a name on does not.
    pub(super) fn needs(&self, import: &Import) -> bool {
        let is_met = import.name.as_ref().is_some_and(|name| self.words.contains(name));
        !import.is_public || is_met
    }
}

struct Parser<'t, I: Iterator<Item = Token<'t>>> {
    rest: Peekable<I>,
}

impl<'t, I: Iterator<Item = Token<'t>>> Parser<'t, I> {
    // Up to the brace that closes the module.
    fn scope(&mut self, scope: &mut Scope) {
        let (mut depth, mut is_public, mut is_tail) = (0_u32, false, false);
        while let Some(token) = self.rest.next() {
            match token {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') if depth == 0 => return,
                Token::Mark('}') => depth -= 1,
                Token::Mark('#') => self.attribute(scope),
                Token::Word("pub") => {
                    if self.rest.next_if_eq(&Token::Mark('(')).is_some() {
                        self.skip_past(')');
                    }
                    is_public = true;
                    continue;
                }
                Token::Word("use") if self.rest.peek() != Some(&Token::Mark('<')) => {
                    self.tree(Vec::new(), is_public, &mut scope.imports);
                }
                Token::Word("mod") => self.module(scope),
                Token::Word(word) => self.path(word, is_tail, scope),
                Token::Path | Token::Mark(_) => {}
            }
            is_public = false;
            is_tail = token == Token::Path;
        }
    }

    fn module(&mut self, scope: &mut Scope) {
        let Some(Token::Word(name)) = self.rest.next() else { return };
        if self.rest.next_if_eq(&Token::Mark('{')).is_none() {
            scope.files.push(name.to_owned());
            return;
        }
        let mut inner = Scope::default();
        self.scope(&mut inner);
        if !inner.is_test {
            scope.inline.push((name.to_owned(), inner));
        }
    }

    fn path(&mut self, first: &str, is_tail: bool, scope: &mut Scope) {
        if DEFINES.contains(&first)
            && let Some(Token::Word(name)) = self.rest.peek()
        {
            scope.items.insert((*name).to_owned());
        }
        let mut path = vec![first.to_owned()];
        while self.rest.next_if_eq(&Token::Path).is_some() {
            let Some(Token::Word(word)) = self.rest.peek() else { break };
            path.push((*word).to_owned());
            self.rest.next();
        }
        scope.words.extend(path.iter().cloned());
        // The tail of `<T as Trait>::name` begins nowhere.
        if !is_tail && path.len() > 1 {
            scope.paths.insert(path);
        }
    }

    // `a::{self, b as c, d::*}`
    fn tree(&mut self, mut path: Vec<String>, is_public: bool, imports: &mut Vec<Import>) {
        let mut name = None;
        loop {
            match self.rest.peek().copied() {
                // The name of a crate follows.
                Some(Token::Path) if path.is_empty() => path.push(String::new()),
                Some(Token::Path) => {}
                Some(Token::Word("as")) => {
                    self.rest.next();
                    name = self.rest.next();
                    continue;
                }
                Some(Token::Word("self")) if !path.is_empty() => {}
                Some(Token::Word(word)) => path.push(word.to_owned()),
                Some(Token::Mark('*')) => {
                    self.rest.next();
                    return imports.push(Import { path, name: None, is_public });
                }
                Some(Token::Mark('{')) => {
                    self.rest.next();
                    while self.rest.next_if_eq(&Token::Mark('}')).is_none() {
                        self.tree(path.clone(), is_public, imports);
                        self.rest.next_if_eq(&Token::Mark(','));
                        if self.rest.peek().is_none() {
                            return;
                        }
                    }
                    return;
                }
                Some(Token::Mark(_)) | None => break,
            }
            self.rest.next();
        }
        let name = match name {
            Some(Token::Word(name)) => Some(name.to_owned()),
            _ => path.last().cloned(),
        };
        if name.is_some() {
            imports.push(Import { path, name, is_public });
        } else {
            // Nothing that the grammar knows: go on after it.
            self.rest.next();
        }
    }

    // Leaves out the item below `#[cfg(test)]`, and the module of `#![cfg(test)]`.
    fn attribute(&mut self, scope: &mut Scope) {
        let is_inner = self.rest.next_if_eq(&Token::Mark('!')).is_some();
        if self.rest.next_if_eq(&Token::Mark('[')).is_none() {
            return;
        }
        let (mut depth, mut words) = (1, Vec::new());
        while depth > 0 {
            match self.rest.next() {
                Some(Token::Mark('[')) => depth += 1,
                Some(Token::Mark(']')) => depth -= 1,
                Some(Token::Word(word)) => words.push(word),
                Some(_) => {}
                None => return,
            }
        }
        let is_of_test = words.first() == Some(&"cfg") && words.contains(&"test");
        if !is_of_test || words.contains(&"not") {
            return;
        }
        if is_inner { scope.is_test = true } else { self.skip_item() }
    }

    // An item ends at its semicolon, or at the brace that closes its first block; a field at its comma.
    fn skip_item(&mut self) {
        let (mut depth, mut is_item, mut has_blocks) = (0_u32, false, true);
        while let Some(token) = self.rest.peek().copied() {
            match token {
                Token::Mark('}') if depth == 0 => return,
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark(')' | ']') => depth = depth.saturating_sub(1),
                Token::Mark('}') => {
                    depth -= 1;
                    if depth == 0 && has_blocks {
                        self.rest.next();
                        return;
                    }
                }
                Token::Mark(';') if depth == 0 => {
                    self.rest.next();
                    return;
                }
                Token::Mark(',') if depth == 0 && !is_item => {
                    self.rest.next();
                    return;
                }
                Token::Word("use" | "const" | "static" | "type" | "let") if depth == 0 => {
                    (is_item, has_blocks) = (true, false);
                }
                Token::Word("fn") if depth == 0 => (is_item, has_blocks) = (true, true),
                Token::Word(word) if depth == 0 => {
                    is_item |= DEFINES.contains(&word) || word == "impl" || word == "mod";
                }
                Token::Word(_) | Token::Path | Token::Mark(_) => {}
            }
            self.rest.next();
        }
    }

    fn skip_past(&mut self, end: char) {
        let _ = self.rest.find(|token| *token == Token::Mark(end));
    }
}

/// The words before the name of an item.
const DEFINES: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<String> {
        let scope = Scope::parse(text);
        let shown = |import: &Import| {
            let name = import.name.as_deref().unwrap_or("*");
            format!("{} as {name}", import.path.join("::"))
        };
        scope.imports.iter().map(shown).collect()
    }

    #[test]
    fn every_branch_of_a_use_is_an_import() {
        let text = "use a::b; pub(crate) use a::{self, c as d, e::{f, *,}}; fn x() { use ::g; }";
        let expected =
            ["a::b as b", "a as a", "a::c as d", "a::e::f as f", "a::e as *", "::g as g"];
        assert_eq!(imports(text), expected);
    }

    #[test]
    fn code_below_a_mark_of_tests_is_left_out() {
        let text = "
            #[cfg(test)] use a::b;
            #[cfg(test)] mod tests;
            #[cfg(any(test, feature = \"x\"))] pub fn c() -> d::E { f::g() }
            #[cfg(test)] #[derive(Debug)] struct H(i::J);
            #[cfg(test)] impl K { fn l() {} }
            #[cfg(test)] const M: [u8; 2] = n::O;
            struct P { #[cfg(test)] q: r::S, t: u::V }
            #[cfg(not(test))] use w::x;
            mod y { #![cfg(test)] use z::z; }
        ";
        let scope = Scope::parse(text);
        assert_eq!(imports(text), ["w::x as x"]);
        assert_eq!(scope.paths, BTreeSet::from([vec!["u".to_owned(), "V".to_owned()]]));
        assert!(scope.files.is_empty() && scope.inline.is_empty());
    }

    #[test]
    fn a_name_that_is_only_passed_on_is_not_needed() {
        let scope = Scope::parse("pub use a::B; pub use a::C; use a::D; fn e(_: C) {}");
        let needed = scope.imports.iter().map(|import| scope.needs(import)).collect::<Vec<_>>();
        assert_eq!(needed, [false, true, true]);
    }

    #[test]
    fn modules_and_paths_are_found_at_any_depth() {
        let scope = Scope::parse("mod a; mod b { mod c; fn d() { super::e::<F>::g() } } h::i!();");
        assert_eq!(scope.files, ["a"]);
        let (name, inner) = &scope.inline[0];
        assert_eq!((name.as_str(), &inner.files[..]), ("b", &["c".to_owned()][..]));
        assert_eq!(inner.paths.first().map(|path| path.join(" ")).as_deref(), Some("super e"));
        assert_eq!(scope.paths.first().map(|path| path.join(" ")).as_deref(), Some("h i"));
    }
}

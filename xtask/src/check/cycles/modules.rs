//! The modules of one crate, and which file takes what from which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::Scope;

/// For each file the files it imports from, with the names that it takes.
pub(super) type Uses = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The modules of a crate, its top first.
#[derive(Debug)]
pub(super) struct Modules(Vec<Module>);

#[derive(Debug)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    scope: Scope,
}

impl Modules {
    /// Reads the crate whose top module is this file, and all files that it leads to.
    pub(super) fn read<'t>(top: &Path, text_of: impl Fn(&Path) -> Option<&'t str>) -> Self {
        let mut modules = Self(Vec::new());
        let folder = top.parent().map_or_else(PathBuf::new, Path::to_owned);
        let scope = Scope::parse(text_of(top).unwrap_or_default());
        modules.add(top, &folder, None, scope, &text_of);
        modules
    }

    // Adds a module, whose children have their files in `folder`.
    fn add<'t>(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        mut scope: Scope,
        text_of: &impl Fn(&Path) -> Option<&'t str>,
    ) -> usize {
        let (files, inline) = (std::mem::take(&mut scope.files), std::mem::take(&mut scope.inline));
        let module = self.0.len();
        let children = BTreeMap::new();
        self.0.push(Module { file: file.to_owned(), parent, children, scope });
        for (name, inner) in inline {
            let child = self.add(file, &folder.join(&name), Some(module), inner, text_of);
            self.0[module].children.insert(name, child);
        }
        for name in files {
            let below = folder.join(&name);
            let places = [below.with_extension("rs"), below.join("mod.rs")];
            let found = places.iter().find_map(|place| Some((place, text_of(place)?)));
            let Some((place, text)) = found else { continue };
            let child = self.add(place, &below, Some(module), Scope::parse(text), text_of);
            self.0[module].children.insert(name, child);
        }
        module
    }

    /// What each file takes from which other file.
    pub(super) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (at, module) in self.0.iter().enumerate() {
            let needed = module.scope.imports.iter().filter(|import| module.scope.needs(import));
            let paths = needed.map(|import| &import.path).chain(&module.scope.paths);
            for path in paths {
                let Some(to) = self.find(at, path, PASSES_MAX) else { continue };
                if *to != module.file {
                    let taken = uses.entry(module.file.clone()).or_default();
                    let name = path.last().cloned().unwrap_or_default();
                    taken.entry(to.clone()).or_default().insert(name);
                }
            }
        }
        uses
    }

    // The file with the definition of what a path in this module names; none if it is of another crate.
    fn find(&self, at: usize, path: &[String], passes: u32) -> Option<&PathBuf> {
        let (first, rest) = path.split_first()?;
        let passes = passes.checked_sub(1)?;
        match first.as_str() {
            "crate" => self.walk(0, rest, passes),
            "self" => self.walk(at, rest, passes),
            "super" => self.climb(at, rest, passes),
            _ if self.0[at].children.contains_key(first) => self.walk(at, path, passes),
            _ => self.passed_on(at, path, passes)?,
        }
    }

    fn climb(&self, at: usize, rest: &[String], passes: u32) -> Option<&PathBuf> {
        let parent = self.0[at].parent?;
        match rest.split_first() {
            Some((first, rest)) if first == "super" => self.climb(parent, rest, passes),
            _ => self.walk(parent, rest, passes),
        }
    }

    fn walk(&self, at: usize, path: &[String], passes: u32) -> Option<&PathBuf> {
        let module = &self.0[at];
        let Some((first, rest)) = path.split_first() else { return Some(&module.file) };
        if let Some(child) = module.children.get(first) {
            return self.walk(*child, rest, passes);
        }
        self.passed_on(at, path, passes).unwrap_or(Some(&module.file))
    }

    // What a module's own imports say of a name, if they have it.
    fn passed_on(&self, at: usize, path: &[String], passes: u32) -> Option<Option<&PathBuf>> {
        let (first, rest) = path.split_first()?;
        let imports = &self.0[at].scope.imports;
        if let Some(import) = imports.iter().find(|import| import.name.as_ref() == Some(first)) {
            let whole = [&import.path[..], rest].concat();
            // `use name` of a crate's name.
            return Some(if whole == path { None } else { self.find(at, &whole, passes) });
        }
        let all = imports.iter().filter(|import| import.name.is_none());
        let within = all.filter_map(|import| {
            let file = self.find(at, &import.path, passes)?;
            let module = self.0.iter().position(|module| module.file == *file)?;
            (self.0[module].scope.items.contains(first)).then_some(file)
        });
        within.map(Some).next()
    }
}

/// A name that is passed on more often is in a circle of its own.
const PASSES_MAX: u32 = 16;

//! The places of a file that mutants change, found in its syntax tree.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Member};

/// A place, and the mutants that change it.
#[derive(Debug)]
pub(crate) struct Site {
    /// What is written anew; empty where something is only added.
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
    /// Number and replacement.
    pub(crate) mutants: Vec<(u32, String)>,
}

/// How a place is changed.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Another operator between the operands.
    Binary { left: Range<usize>, right: Range<usize> },
    /// No operator before the operand.
    Unary { operand: Range<usize> },
    /// A constant instead of the guard of a match arm.
    Guard,
    /// A value returned before the body begins.
    Body,
    /// A match arm that is never taken.
    Arm,
    /// A field that comes from the base of a struct expression; `label` is what a shorthand lacks.
    Field { base: String, label: String },
}

impl Site {
    // Outer places first; what is added in front of a place comes before it.
    fn order(&self) -> (usize, bool, Reverse<usize>, bool) {
        let is_inner = !matches!(self.kind, Kind::Guard | Kind::Field { .. });
        (self.range.start, !self.range.is_empty(), Reverse(self.range.end), is_inner)
    }
}

/// Mutants by their genre and the byte at which they begin.
pub(crate) type Wanted = HashMap<(String, usize), Vec<(u32, String)>>;

/// The places of the mutants of `wanted`, in order. Mutants that have none stay in `wanted`.
pub(crate) fn find(source: &str, wanted: &mut Wanted) -> Result<Vec<Site>, syn::Error> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder { source, wanted, sites: Vec::new() };
    finder.visit_file(&file);
    finder.sites.sort_by_key(Site::order);
    Ok(finder.sites)
}

struct Finder<'a> {
    source: &'a str,
    wanted: &'a mut Wanted,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn add(&mut self, genre: &str, at: Span, range: Range<usize>, kind: Kind) {
        if let Some(mutants) = self.wanted.remove(&(genre.to_owned(), at.byte_range().start)) {
            self.sites.push(Site { range, kind, mutants });
        }
    }

    fn body(&mut self, block: &Block) {
        if let Some(first) = block.stmts.first() {
            let start = first.span().byte_range().start;
            self.add("FnValue", first.span(), start..start, Kind::Body);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        // A chain with `let` in it is no expression that could stand alone.
        let is_chain =
            matches!(expr.op, BinOp::And(_)) && (has_let(&expr.left) || has_let(&expr.right));
        if !is_chain {
            let left = expr.left.span().byte_range();
            let right = expr.right.span().byte_range();
            let whole = left.start..right.end;
            self.add("BinaryOperator", expr.op.span(), whole, Kind::Binary { left, right });
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let operand = expr.expr.span().byte_range();
        let whole = expr.op.span().byte_range().start..operand.end;
        self.add("UnaryOperator", expr.op.span(), whole, Kind::Unary { operand });
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let end = arm.pat.span().byte_range().end;
        self.add("MatchArm", arm.span(), end..end, Kind::Arm);
        if let Some((_, guard)) = &arm.guard
            && !has_let(guard)
        {
            self.add("MatchArmGuard", guard.span(), guard.span().byte_range(), Kind::Guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        if let Some(rest) = &expr.rest {
            let text = |span: Span| &self.source[span.byte_range()];
            let (rest_text, path) =
                (text(rest.span()).to_owned(), text(expr.path.span()).to_owned());
            for field in &expr.fields {
                let Member::Named(name) = &field.member else { continue };
                let base = match **rest {
                    Expr::Path(_) => format!("{rest_text}.{name}"),
                    _ => format!("let whole: {path} = {rest_text}; whole.{name}"),
                };
                let label =
                    if field.colon_token.is_some() { String::new() } else { format!("{name}: ") };
                let kind = Kind::Field { base, label };
                self.add("StructField", field.span(), field.expr.span().byte_range(), kind);
            }
        }
        visit::visit_expr_struct(self, expr);
    }
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

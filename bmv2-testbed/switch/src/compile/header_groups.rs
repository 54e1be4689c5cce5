//! Header stacks, unions and stacks of unions of the JSON, by name.

use std::collections::BTreeMap;

use super::headers::HeaderCatalog;
use super::{LoadError, json};
use crate::ids::{HeaderIndex, StackIndex};
use crate::run::header::HeaderStack;

/// All groups of header instances.
#[derive(Debug, Default)]
pub(super) struct HeaderGroups {
    stacks: BTreeMap<String, HeaderStack>,
    unions: BTreeMap<String, Vec<HeaderIndex>>,
    /// For each stack of unions, the names of a union's members.
    members: BTreeMap<String, Vec<String>>,
}

impl HeaderGroups {
    /// Finds the headers of each group.
    pub(super) fn resolve_groups(
        root: &json::ProgramDocument,
        headers: &HeaderCatalog,
    ) -> Result<Self, LoadError> {
        let mut groups = Self::default();
        let find = |ids: &[u32], at: &str| -> Result<Vec<HeaderIndex>, LoadError> {
            ids.iter().map(|id| headers.header_by_id(*id, at)).collect()
        };
        for stack in &root.header_stacks {
            let elements = find(&stack.header_ids, &stack.name)?;
            let elements = elements.into_iter().map(|header| vec![header]).collect();
            groups.add_stack(&stack.name, elements);
        }
        let mut unions = BTreeMap::new();
        for union in &root.header_unions {
            let members = find(&union.header_ids, &union.name)?;
            unions.insert(union.id, members.clone());
            groups.unions.insert(union.name.clone(), members);
        }
        for stack in &root.header_union_stacks {
            let at = &stack.name;
            let elements: Option<Vec<_>> =
                stack.header_union_ids.iter().map(|id| unions.get(id).cloned()).collect();
            let elements = elements.ok_or_else(|| LoadError::missing("union", at, at))?;
            groups.add_stack(at, elements);
            let of = root.header_union_types.iter().find(|of| of.name == stack.union_type);
            let of = of.ok_or_else(|| LoadError::missing("union type", &stack.union_type, at))?;
            let names = of.headers.iter().map(|(name, _)| name.clone()).collect();
            groups.members.insert(at.clone(), names);
        }
        Ok(groups)
    }

    fn add_stack(&mut self, name: &str, elements: Vec<Vec<HeaderIndex>>) {
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.insert(name.to_owned(), HeaderStack { index, elements });
    }

    /// How many stacks there are.
    pub(super) fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// The members of each union.
    pub(super) fn unions(&self) -> impl Iterator<Item = &[HeaderIndex]> {
        self.unions.values().map(Vec::as_slice)
    }

    /// The members of a union.
    pub(super) fn find_union(&self, name: &str) -> Option<&[HeaderIndex]> {
        self.unions.get(name).map(Vec::as_slice)
    }

    /// A stack of headers or of unions.
    pub(super) fn find_stack(&self, name: &str, at: &str) -> Result<&HeaderStack, LoadError> {
        self.stacks.get(name).ok_or_else(|| LoadError::missing("header stack", name, at))
    }

    /// The place of a member in the unions of a stack.
    pub(super) fn member_position(
        &self,
        stack: &str,
        member: &str,
        at: &str,
    ) -> Result<usize, LoadError> {
        let names = self.members.get(stack);
        let found = names.and_then(|names| names.iter().position(|name| name == member));
        found.ok_or_else(|| LoadError::missing("union member", member, at))
    }
}

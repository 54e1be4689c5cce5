//! An action profile of a device: members that call actions and groups that pick among members.
//!
//! Table entries refer to both by number; `references` counts them, so that nothing in use can be
//! deleted and the packet path never meets a missing member. A group keeps its members spread out
//! by weight, in ascending order, and the selector's hash modulo their number picks one, as in
//! BMv2.

use std::collections::BTreeMap;

use crate::control::{ActionCall, ControlError, GroupId, GroupMember, MemberId, Target};

/// One action profile with its members and groups.
#[derive(Debug)]
pub(crate) struct Profile {
    size: usize,
    members: BTreeMap<MemberId, Member>,
    groups: BTreeMap<GroupId, Group>,
}

#[derive(Debug)]
struct Member {
    call: ActionCall,
    entries: usize,
    groups: usize,
}

#[derive(Debug)]
struct Group {
    members: Vec<GroupMember>,
    /// Each member as often as its weight says, ascending.
    choices: Vec<MemberId>,
    entries: usize,
}

impl Profile {
    /// An empty profile for `size` members.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// The action of a target that refers here; none for a group without members.
    #[inline]
    pub(crate) fn resolve<'a>(
        &'a self,
        target: &'a Target,
        hash: impl FnOnce() -> u64,
    ) -> Option<&'a ActionCall> {
        let member = match target {
            Target::Action(call) => return Some(call),
            Target::Member(member) => *member,
            Target::Group(group) => {
                let choices = &self.groups.get(group)?.choices;
                let at = hash().checked_rem(choices.len() as u64)?;
                choices[at as usize]
            }
        };
        self.members.get(&member).map(|member| &member.call)
    }

    /// Adds a member; its call has been checked by the caller.
    pub(crate) fn insert_member(
        &mut self,
        id: MemberId,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        if self.members.contains_key(&id) {
            return Err(ControlError::AlreadyExists);
        }
        if self.members.len() >= self.size {
            return Err(ControlError::Full { size: self.size });
        }
        self.members.insert(
            id,
            Member {
                call,
                entries: 0,
                groups: 0,
            },
        );
        Ok(())
    }

    /// Changes what a member calls, for everything that refers to it.
    pub(crate) fn modify_member(
        &mut self,
        id: MemberId,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        self.members
            .get_mut(&id)
            .ok_or(ControlError::NotFound)?
            .call = call;
        Ok(())
    }

    /// Removes a member nothing refers to.
    pub(crate) fn delete_member(&mut self, id: MemberId) -> Result<(), ControlError> {
        let member = self.members.get(&id).ok_or(ControlError::NotFound)?;
        match (member.entries, member.groups) {
            (0, 0) => {
                self.members.remove(&id);
                Ok(())
            }
            (0, _) => Err(ControlError::InUse("a group")),
            _ => Err(ControlError::InUse("a table entry")),
        }
    }

    /// What a member calls.
    pub(crate) fn member(&self, id: MemberId) -> Option<&ActionCall> {
        self.members.get(&id).map(|member| &member.call)
    }

    /// All members, by number.
    pub(crate) fn members(&self) -> impl Iterator<Item = (MemberId, &ActionCall)> {
        self.members.iter().map(|(id, member)| (*id, &member.call))
    }

    /// Adds a group of existing members.
    pub(crate) fn insert_group(
        &mut self,
        id: GroupId,
        members: Vec<GroupMember>,
    ) -> Result<(), ControlError> {
        if self.groups.contains_key(&id) {
            return Err(ControlError::AlreadyExists);
        }
        let choices = self.choices(&members)?;
        self.join(&members);
        self.groups.insert(
            id,
            Group {
                members,
                choices,
                entries: 0,
            },
        );
        Ok(())
    }

    /// Replaces a group's members in one step.
    pub(crate) fn modify_group(
        &mut self,
        id: GroupId,
        members: Vec<GroupMember>,
    ) -> Result<(), ControlError> {
        let choices = self.choices(&members)?;
        if !self.groups.contains_key(&id) {
            return Err(ControlError::NotFound);
        }
        self.join(&members);
        if let Some(group) = self.groups.get_mut(&id) {
            group.choices = choices;
            let left = std::mem::replace(&mut group.members, members);
            self.leave(&left);
        }
        Ok(())
    }

    /// Removes a group no entry refers to.
    pub(crate) fn delete_group(&mut self, id: GroupId) -> Result<(), ControlError> {
        let group = self.groups.get(&id).ok_or(ControlError::NotFound)?;
        if group.entries > 0 {
            return Err(ControlError::InUse("a table entry"));
        }
        if let Some(group) = self.groups.remove(&id) {
            self.leave(&group.members);
        }
        Ok(())
    }

    /// A group's members, as given.
    pub(crate) fn group(&self, id: GroupId) -> Option<&[GroupMember]> {
        self.groups.get(&id).map(|group| group.members.as_slice())
    }

    /// All groups, by number.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupId, &[GroupMember])> {
        self.groups
            .iter()
            .map(|(id, group)| (*id, group.members.as_slice()))
    }

    /// Whether what a target refers to exists.
    pub(crate) fn check(&self, target: &Target) -> Result<(), ControlError> {
        match target {
            Target::Action(_) => Err(ControlError::TargetKind("members or groups of its profile")),
            Target::Member(id) if self.members.contains_key(id) => Ok(()),
            Target::Member(id) => Err(ControlError::NoSuchMember(*id)),
            Target::Group(id) if self.groups.contains_key(id) => Ok(()),
            Target::Group(id) => Err(ControlError::NoSuchGroup(*id)),
        }
    }

    /// Notes that one more entry refers to a checked target.
    pub(crate) fn refer(&mut self, target: &Target) {
        if let Some(entries) = self.entries_of(target) {
            *entries += 1;
        }
    }

    /// Notes that one entry less refers to a target.
    pub(crate) fn release(&mut self, target: &Target) {
        if let Some(entries) = self.entries_of(target) {
            *entries -= 1;
        }
    }

    fn entries_of(&mut self, target: &Target) -> Option<&mut usize> {
        match target {
            Target::Action(_) => None,
            Target::Member(id) => self.members.get_mut(id).map(|member| &mut member.entries),
            Target::Group(id) => self.groups.get_mut(id).map(|group| &mut group.entries),
        }
    }

    fn choices(&self, members: &[GroupMember]) -> Result<Vec<MemberId>, ControlError> {
        let mut weights = BTreeMap::new();
        for GroupMember { member, weight } in members {
            if !self.members.contains_key(member) {
                return Err(ControlError::NoSuchMember(*member));
            }
            if *weight == 0 || weights.insert(*member, *weight as usize).is_some() {
                return Err(ControlError::BadGroup(*member));
            }
        }
        let total: usize = weights.values().sum();
        if total > self.size {
            return Err(ControlError::Full { size: self.size });
        }
        let spread = weights
            .into_iter()
            .flat_map(|(id, weight)| std::iter::repeat_n(id, weight));
        Ok(spread.collect())
    }

    fn join(&mut self, members: &[GroupMember]) {
        for GroupMember { member, .. } in members {
            if let Some(member) = self.members.get_mut(member) {
                member.groups += 1;
            }
        }
    }

    fn leave(&mut self, members: &[GroupMember]) {
        for GroupMember { member, .. } in members {
            if let Some(member) = self.members.get_mut(member) {
                member.groups -= 1;
            }
        }
    }
}

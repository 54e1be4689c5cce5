//! An action profile of a device: members that call actions and groups that pick among members.
//!
//! Table entries refer to both by number; `references` counts them, so that nothing in use can be
//! deleted and the packet path never finds a missing member. A group keeps its members spread out
//! by weight, in ascending order, and the selector's hash modulo their number picks one, as in
//! BMv2. Members that watch a port which carries no packets are not among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{GroupId, MemberId};
use crate::spec::entry::{ActionCall, ControlError, GroupMember, TableAction};

/// The ports that carry packets, as the owner of the device has reported them; before that, all do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LivePorts(Option<BTreeSet<u16>>);

impl LivePorts {
    /// No ports but these carry packets.
    pub(crate) fn reported(ports: impl IntoIterator<Item = u16>) -> Self {
        Self(Some(ports.into_iter().collect()))
    }

    /// Whether a member may be selected.
    fn allow_member(&self, member: &GroupMember) -> bool {
        match (&self.0, member.watch) {
            (Some(live), Some(port)) => live.contains(&port),
            // Without reports of ports all members take part, and one that watches no port always
            // does.
            _ => true,
        }
    }
}

/// One action profile with its members and groups.
#[derive(Debug)]
pub(crate) struct ActionProfile {
    size: usize,
    members: BTreeMap<MemberId, ProfileMember>,
    groups: BTreeMap<GroupId, ProfileGroup>,
    live_ports: LivePorts,
}

#[derive(Debug)]
struct ProfileMember {
    call: ActionCall,
    entries: usize,
    groups: usize,
}

#[derive(Debug)]
struct ProfileGroup {
    members: Vec<GroupMember>,
    /// Each member that may be selected as often as its weight says, ascending.
    choices: Vec<MemberId>,
    entries: usize,
}

impl ActionProfile {
    /// An empty profile for `size` members.
    pub(crate) fn new(size: usize, live_ports: LivePorts) -> Self {
        Self { size, members: BTreeMap::new(), groups: BTreeMap::new(), live_ports }
    }

    /// Takes members out of the groups, and back in, by the ports that they watch.
    pub(crate) fn set_live_ports(&mut self, live_ports: &LivePorts) {
        self.live_ports = live_ports.clone();
        for group in self.groups.values_mut() {
            if group.members.iter().any(|member| member.watch.is_some()) {
                group.choices = live_choices(&group.members, live_ports);
            }
        }
    }

    /// The action of a target that refers here; none for a group without members.
    #[inline]
    pub(crate) fn resolve_call<'a>(
        &'a self,
        target: &'a TableAction,
        hash: impl FnOnce() -> u64,
    ) -> Option<&'a ActionCall> {
        let member = match target {
            TableAction::Action(call) => return Some(call),
            TableAction::Member(member) => *member,
            TableAction::Group(group) => {
                let choices = &self.groups.get(group)?.choices;
                // The hash is computed only for groups, and a group without members has no
                // remainder.
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
        self.members.insert(id, ProfileMember { call, entries: 0, groups: 0 });
        Ok(())
    }

    /// Changes what a member calls, for everything that refers to it.
    pub(crate) fn modify_member(
        &mut self,
        id: MemberId,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        self.members.get_mut(&id).ok_or(ControlError::NotFound)?.call = call;
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

    /// How many members there are.
    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
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
        self.check_members(&members)?;
        let choices = live_choices(&members, &self.live_ports);
        self.add_group_references(&members);
        self.groups.insert(id, ProfileGroup { members, choices, entries: 0 });
        Ok(())
    }

    /// Replaces a group's members in one step.
    pub(crate) fn modify_group(
        &mut self,
        id: GroupId,
        members: Vec<GroupMember>,
    ) -> Result<(), ControlError> {
        self.check_members(&members)?;
        let choices = live_choices(&members, &self.live_ports);
        if !self.groups.contains_key(&id) {
            return Err(ControlError::NotFound);
        }
        // Before the old ones are released: a member of both is never without a reference.
        self.add_group_references(&members);
        if let Some(group) = self.groups.get_mut(&id) {
            group.choices = choices;
            let left = std::mem::replace(&mut group.members, members);
            self.remove_group_references(&left);
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
            self.remove_group_references(&group.members);
        }
        Ok(())
    }

    /// A group's members, as given.
    pub(crate) fn group(&self, id: GroupId) -> Option<&[GroupMember]> {
        self.groups.get(&id).map(|group| group.members.as_slice())
    }

    /// How many groups there are.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Whether what a target refers to exists.
    pub(crate) fn check_target(&self, target: &TableAction) -> Result<(), ControlError> {
        match target {
            TableAction::Action(_) => {
                Err(ControlError::TargetKind("members or groups of its profile"))
            }
            TableAction::Member(id) if self.members.contains_key(id) => Ok(()),
            TableAction::Member(id) => Err(ControlError::NoSuchMember(*id)),
            TableAction::Group(id) if self.groups.contains_key(id) => Ok(()),
            TableAction::Group(id) => Err(ControlError::NoSuchGroup(*id)),
        }
    }

    /// Notes that one more entry refers to a checked target.
    pub(crate) fn add_reference(&mut self, target: &TableAction) {
        if let Some(entries) = self.entry_count_mut(target) {
            *entries += 1;
        }
    }

    /// Notes that one entry less refers to a target.
    pub(crate) fn remove_reference(&mut self, target: &TableAction) {
        if let Some(entries) = self.entry_count_mut(target) {
            *entries -= 1;
        }
    }

    fn entry_count_mut(&mut self, target: &TableAction) -> Option<&mut usize> {
        match target {
            TableAction::Action(_) => None,
            TableAction::Member(id) => self.members.get_mut(id).map(|member| &mut member.entries),
            TableAction::Group(id) => self.groups.get_mut(id).map(|group| &mut group.entries),
        }
    }

    fn check_members(&self, members: &[GroupMember]) -> Result<(), ControlError> {
        let mut weights = BTreeMap::new();
        for GroupMember { member, weight, .. } in members {
            if !self.members.contains_key(member) {
                return Err(ControlError::NoSuchMember(*member));
            }
            // P4Runtime has each member once, with a weight above 0.
            if *weight == 0 || weights.insert(*member, *weight as usize).is_some() {
                return Err(ControlError::BadGroup(*member));
            }
        }
        let total: usize = weights.values().sum();
        if total > self.size {
            return Err(ControlError::Full { size: self.size });
        }
        Ok(())
    }

    fn add_group_references(&mut self, members: &[GroupMember]) {
        for GroupMember { member, .. } in members {
            if let Some(member) = self.members.get_mut(member) {
                member.groups += 1;
            }
        }
    }

    fn remove_group_references(&mut self, members: &[GroupMember]) {
        for GroupMember { member, .. } in members {
            if let Some(member) = self.members.get_mut(member) {
                member.groups -= 1;
            }
        }
    }
}

/// The members that may be selected, each as often as its weight says, ascending.
fn live_choices(members: &[GroupMember], live_ports: &LivePorts) -> Vec<MemberId> {
    let live = members.iter().filter(|member| live_ports.allow_member(member));
    let weights: BTreeMap<MemberId, usize> =
        live.map(|member| (member.member, member.weight as usize)).collect();
    // In the order of ids, so that the choice does not depend on how a controller lists members.
    weights.into_iter().flat_map(|(id, weight)| std::iter::repeat_n(id, weight)).collect()
}

//! Updates of action profiles: members and groups written one by one, and one-shot action sets.
//!
//! A one-shot becomes a group and members of its own under unused numbers, and
//! [`ControllerMetadata`] keeps what was written. As the specification demands, a profile is used
//! in one style at a time.
//!
//! [`ControllerMetadata`]: super::controller_metadata::ControllerMetadata

use p4rt::action_profile_action::WatchKind as ActionWatch;
use p4rt::action_profile_action_set::{ActionSelectionMode, SizeSemantics};
use p4rt::action_profile_group::member::WatchKind as MemberWatch;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;

use super::bytestring::canonicalize_port;
use super::controller_metadata::{OneShot, OneShotAction, ProfileNumbers};
use super::entity::{ActionUse, decode_action};
use super::entity_writer::{EntityWriter, find_table};
use super::error::RequestFailure;
use super::number_pool::NumberPool;
use crate::p4runtime::p4info::{PipelineSchema, ProfileSchema, TableSchema};
use switch::ProfileIndex;
use switch::{ControlError, GroupMember, MatchKey, TableAction};

impl EntityWriter<'_> {
    pub(super) fn write_member(
        &mut self,
        kind: Kind,
        member: &p4rt::ActionProfileMember,
    ) -> Result<(), RequestFailure> {
        let profile = find_profile(self.schema, member.action_profile_id)?;
        let id = require_id(member.member_id, "member")?;
        self.check_programming_style(profile)?;
        if kind == Kind::Delete {
            return Ok(self.device.delete_member(profile.index, id)?);
        }
        let action = member.action.as_ref();
        let action =
            action.ok_or_else(|| RequestFailure::invalid_argument("the member has no action"))?;
        let table = find_table(self.schema, profile.table)?;
        let call = decode_action(&table.actions, action, ActionUse::Entry)?;
        match kind {
            Kind::Insert => self.device.insert_member(profile.index, id, call)?,
            _ => self.device.modify_member(profile.index, id, call)?,
        }
        Ok(())
    }

    pub(super) fn write_group(
        &mut self,
        kind: Kind,
        group: &p4rt::ActionProfileGroup,
    ) -> Result<(), RequestFailure> {
        let profile = find_profile(self.schema, group.action_profile_id)?;
        let id = require_id(group.group_id, "group")?;
        if !profile.with_selector {
            let message = format!("action profile {} has no selector", profile.name);
            return Err(RequestFailure::invalid_argument(message));
        }
        self.check_programming_style(profile)?;
        let place = (profile.index, id);
        if kind == Kind::Delete {
            self.device.delete_group(profile.index, id)?;
            self.metadata.groups.remove(&place);
            return Ok(());
        }
        let mut group = group.clone();
        let members = decode_group_members(profile, &mut group)?;
        match kind {
            Kind::Insert => self.device.insert_group(profile.index, id, members)?,
            _ => {
                let written = self.metadata.groups.get(&place);
                if written.is_some_and(|written| written.max_size != group.max_size) {
                    return Err(RequestFailure::invalid_argument(
                        "the max_size of a group cannot change",
                    ));
                }
                self.device.modify_group(profile.index, id, members)?;
            }
        }
        self.metadata.groups.insert(place, group);
        Ok(())
    }

    /// Members and groups may be named only while no one-shot uses the profile.
    pub(super) fn check_programming_style(
        &self,
        profile: &ProfileSchema,
    ) -> Result<(), RequestFailure> {
        if !self.metadata.has_one_shots(profile.index) {
            return Ok(());
        }
        Err(RequestFailure::invalid_argument(format!(
            "action profile {} is in use by one-shots",
            profile.name
        )))
    }

    pub(super) fn insert_one_shot(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        set: &p4rt::ActionProfileActionSet,
    ) -> Result<OneShot, RequestFailure> {
        let profile = find_selector(self.schema, table)?;
        let mut one_shot = self.decode_one_shot(profile, table, set)?;
        self.check_capacity(profile, &one_shot, 0)?;
        one_shot.group = self.unused_number(profile.index, |numbers| &mut numbers.groups)?;
        self.insert_choices(&mut one_shot)?;
        self.device.insert_group(profile.index, one_shot.group, weighted_members(&one_shot))?;
        let target = TableAction::Group(one_shot.group);
        if let Err(refused) = self.device.insert_entry(table.index, key.clone(), target) {
            self.delete_one_shot(&one_shot)?;
            return Err(refused.into());
        }
        Ok(one_shot)
    }

    /// Refills the entry's group. It is empty for a moment that no packet can see: the device does
    /// nothing else during an update.
    pub(super) fn modify_one_shot(
        &mut self,
        table: &TableSchema,
        key: &MatchKey,
        set: &p4rt::ActionProfileActionSet,
    ) -> Result<OneShot, RequestFailure> {
        let profile = find_selector(self.schema, table)?;
        let mut one_shot = self.decode_one_shot(profile, table, set)?;
        let note = self.metadata.entry_metadata(table.index, key);
        let old = note.and_then(|note| note.one_shot.clone()).ok_or(ControlError::NotFound)?;
        self.check_capacity(profile, &one_shot, old.members.len())?;
        self.device.modify_group(profile.index, old.group, Vec::new())?;
        self.delete_choices(&old)?;
        one_shot.group = old.group;
        self.insert_choices(&mut one_shot)?;
        self.device.modify_group(profile.index, one_shot.group, weighted_members(&one_shot))?;
        Ok(one_shot)
    }

    /// Removes the group and members of a one-shot that no entry refers to any more.
    pub(super) fn delete_one_shot(&mut self, one_shot: &OneShot) -> Result<(), RequestFailure> {
        self.device.delete_group(one_shot.profile, one_shot.group)?;
        self.metadata.numbers(one_shot.profile).groups.give_back(one_shot.group);
        self.delete_choices(one_shot)
    }

    /// The choices of an action set, checked; numbers are still to be found.
    fn decode_one_shot(
        &self,
        profile: &ProfileSchema,
        table: &TableSchema,
        set: &p4rt::ActionProfileActionSet,
    ) -> Result<OneShot, RequestFailure> {
        check_selector_modes(profile, set)?;
        let mut actions = Vec::new();
        for action in &set.action_profile_actions {
            let Some(call) = &action.action else {
                return Err(RequestFailure::invalid_argument("a choice has no action"));
            };
            let mut watch = action.watch_kind.clone();
            #[allow(deprecated)] // Still part of v1.5.
            let watched_port = match &mut watch {
                Some(ActionWatch::WatchPort(bytes)) => watched_port(bytes)?,
                Some(ActionWatch::Watch(port)) => Some(decode_watch(*port)?),
                None => None,
            };
            actions.push(OneShotAction {
                call: decode_action(&table.actions, call, ActionUse::Entry)?,
                weight: decode_weight(action.weight)?,
                watch,
                watched_port,
            });
        }
        let weights = actions.iter().map(|action| action.weight);
        check_group_size(profile, profile.max_group_size, weights)?;
        Ok(OneShot {
            profile: profile.index,
            group: 0,
            members: Vec::new(),
            actions,
            selection_mode: set.action_selection_mode,
            size_semantics: set.size_semantics,
        })
    }

    /// Whether the profile has room once `freed` members are gone, and is not used the other way.
    fn check_capacity(
        &self,
        profile: &ProfileSchema,
        one_shot: &OneShot,
        freed: usize,
    ) -> Result<(), RequestFailure> {
        let members = self.device.member_count(profile.index)?;
        let groups = self.device.group_count(profile.index)?;
        if members + groups > 0 && !self.metadata.has_one_shots(profile.index) {
            let message = format!("action profile {} is in use by members", profile.name);
            return Err(RequestFailure::invalid_argument(message));
        }
        let total: u64 = one_shot.actions.iter().map(|choice| u64::from(choice.weight)).sum();
        let needed = members.saturating_sub(freed).saturating_add(one_shot.actions.len());
        if needed > profile.size || total > profile.size as u64 {
            return Err(ControlError::Full { size: profile.size }.into());
        }
        Ok(())
    }

    /// Adds one member per choice under unused numbers.
    fn insert_choices(&mut self, one_shot: &mut OneShot) -> Result<(), RequestFailure> {
        for choice in &one_shot.actions {
            let id = self.unused_number(one_shot.profile, |numbers| &mut numbers.members)?;
            self.device.insert_member(one_shot.profile, id, choice.call.clone())?;
            one_shot.members.push(id);
        }
        Ok(())
    }

    /// Removes the members of a one-shot that no group refers to any more.
    fn delete_choices(&mut self, one_shot: &OneShot) -> Result<(), RequestFailure> {
        for &member in &one_shot.members {
            self.device.delete_member(one_shot.profile, member)?;
            self.metadata.numbers(one_shot.profile).members.give_back(member);
        }
        Ok(())
    }

    /// The lowest number that no one-shot uses. While there are one-shots, nobody else has any.
    fn unused_number(
        &mut self,
        profile: ProfileIndex,
        pool: impl Fn(&mut ProfileNumbers) -> &mut NumberPool,
    ) -> Result<u32, RequestFailure> {
        let unused = pool(self.metadata.numbers(profile)).take_lowest();
        unused.ok_or_else(|| ControlError::Full { size: u32::MAX as usize }.into())
    }
}

/// The profile with this id.
pub(super) fn find_profile(
    schema: &PipelineSchema,
    id: u32,
) -> Result<&ProfileSchema, RequestFailure> {
    let found = schema.profiles.get(&id);
    found.ok_or_else(|| schema.unknown_id("action profile", id))
}

fn find_selector<'a>(
    schema: &'a PipelineSchema,
    table: &TableSchema,
) -> Result<&'a ProfileSchema, RequestFailure> {
    let profile = table.profile.and_then(|profile| schema.profiles.get(&profile));
    let selector = profile.filter(|profile| profile.with_selector);
    selector.ok_or_else(|| {
        RequestFailure::invalid_argument(format!("table {} has no selector", table.name))
    })
}

fn require_id(id: u32, what: &str) -> Result<u32, RequestFailure> {
    if id == 0 {
        return Err(RequestFailure::invalid_argument(format!("the {what} has no id")));
    }
    Ok(id)
}

fn decode_weight(weight: i32) -> Result<u32, RequestFailure> {
    let positive = u32::try_from(weight).ok().filter(|&weight| weight > 0);
    positive.ok_or_else(|| RequestFailure::invalid_argument(format!("{weight} is not a weight")))
}

fn weighted_members(one_shot: &OneShot) -> Vec<GroupMember> {
    let pairs = one_shot.members.iter().zip(&one_shot.actions);
    pairs
        .map(|(&member, choice)| {
            let (weight, watch) = (choice.weight, choice.watched_port);
            GroupMember { member, weight, watch }
        })
        .collect()
}

/// The port that a member watches, which is canonical afterwards; an empty string watches no port.
fn watched_port(bytes: &mut Vec<u8>) -> Result<Option<u16>, RequestFailure> {
    if bytes.is_empty() {
        return Ok(None);
    }
    canonicalize_port(bytes).map(Some)
}

/// A port in the form of P4Runtime before 1.0.
fn decode_watch(port: i32) -> Result<u16, RequestFailure> {
    let port = u16::try_from(port);
    port.map_err(|_| RequestFailure::invalid_argument("the watch is not a port"))
}

/// A group's members in the form of the device; the ports that they watch are canonical afterwards.
fn decode_group_members(
    profile: &ProfileSchema,
    group: &mut p4rt::ActionProfileGroup,
) -> Result<Vec<GroupMember>, RequestFailure> {
    let limit = profile.max_group_size;
    let fits = if limit > 0 { 1..=limit } else { 0..=i32::MAX };
    if !fits.contains(&group.max_size) {
        let message = format!("max_size {} is not within {fits:?}", group.max_size);
        return Err(RequestFailure::invalid_argument(message));
    }
    let mut members = Vec::new();
    for member in &mut group.members {
        let weight = decode_weight(member.weight)?;
        #[allow(deprecated)] // Still part of v1.5.
        let watch = match &mut member.watch_kind {
            Some(MemberWatch::WatchPort(bytes)) => watched_port(bytes)?,
            Some(MemberWatch::Watch(port)) => Some(decode_watch(*port)?),
            None => None,
        };
        members.push(GroupMember { member: member.member_id, weight, watch });
    }
    check_group_size(profile, group.max_size, members.iter().map(|member| member.weight))?;
    Ok(members)
}

/// Checks a group against its greatest size, where 0 stands for none.
fn check_group_size(
    profile: &ProfileSchema,
    limit: i32,
    weights: impl Iterator<Item = u32> + Clone,
) -> Result<(), RequestFailure> {
    let size: u64 = match profile.max_member_weight {
        Some(heaviest) if heaviest > 0 => {
            if let Some(weight) = weights.clone().find(|&w| i64::from(w) > i64::from(heaviest)) {
                return Err(RequestFailure::invalid_argument(format!(
                    "weight {weight} is above {heaviest}"
                )));
            }
            weights.count() as u64
        }
        Some(_) => weights.count() as u64,
        None => weights.map(u64::from).sum(),
    };
    match u64::try_from(limit) {
        Ok(limit) if limit > 0 && size > limit => Err(RequestFailure::invalid_argument(format!(
            "the group's size {size} is above {limit}"
        ))),
        _ => Ok(()),
    }
}

/// Accepts the selector's own settings only: hashing, and the size that the P4Info declares.
fn check_selector_modes(
    profile: &ProfileSchema,
    set: &p4rt::ActionProfileActionSet,
) -> Result<(), RequestFailure> {
    let counts_members = profile.max_member_weight.is_some();
    match ActionSelectionMode::try_from(set.action_selection_mode) {
        Ok(ActionSelectionMode::Random) => {
            return Err(RequestFailure::unimplemented("action selection mode RANDOM"));
        }
        Ok(_) => {}
        Err(_) => {
            return Err(RequestFailure::invalid_argument("the action selection mode is unknown"));
        }
    }
    match SizeSemantics::try_from(set.size_semantics) {
        Ok(SizeSemantics::SumOfWeights) if counts_members => {
            Err(RequestFailure::unimplemented("SUM_OF_WEIGHTS for this selector"))
        }
        Ok(SizeSemantics::SumOfMembers) if !counts_members => {
            Err(RequestFailure::unimplemented("SUM_OF_MEMBERS for this selector"))
        }
        Ok(_) => Ok(()),
        Err(_) => Err(RequestFailure::invalid_argument("the size semantics are unknown")),
    }
}

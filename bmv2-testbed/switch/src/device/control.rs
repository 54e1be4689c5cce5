//! The control API of a device: tables, action profiles and counters by index.
//!
//! Every change that the P4Runtime service makes to a device goes through here. A call that returns
//! an error has changed nothing.

use super::{Device, LoadedProgram};
use crate::ids::{ActionIndex, CounterIndex, GroupId, MemberId, ProfileIndex, TableIndex};
use crate::run::counter::CounterData;
use crate::run::profile::ActionProfile;
use crate::run::table::{EntryView, MatchTable};
use crate::spec::entry::{
    ActionCall, ControlError, GroupMember, MatchKey, TableAction, check_arguments,
};

impl Device {
    /// Inserts an entry into a table.
    pub fn insert_entry(
        &mut self,
        table: TableIndex,
        key: MatchKey,
        target: TableAction,
    ) -> Result<(), ControlError> {
        let loaded = self.loaded_mut()?;
        loaded.check_target(table, &target)?;
        loaded.table(table)?.check_insert(&key)?;
        loaded.add_reference(table, &target);
        loaded.table_mut(table)?.insert_entry(key, target);
        Ok(())
    }

    /// Replaces what an entry leads to; its direct counter stays.
    pub fn modify_entry(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        target: TableAction,
    ) -> Result<(), ControlError> {
        let loaded = self.loaded_mut()?;
        loaded.check_target(table, &target)?;
        loaded.table(table)?.check_existing(key)?;
        loaded.add_reference(table, &target);
        let old = loaded.table_mut(table)?.modify_entry(key, target)?;
        loaded.remove_reference(table, &old);
        Ok(())
    }

    /// Deletes the entry with a key from a table.
    pub fn delete_entry(&mut self, table: TableIndex, key: &MatchKey) -> Result<(), ControlError> {
        let loaded = self.loaded_mut()?;
        let old = loaded.table_mut(table)?.delete_entry(key)?;
        loaded.remove_reference(table, &old);
        Ok(())
    }

    /// The entry with this key.
    pub fn entry(&self, table: TableIndex, key: &MatchKey) -> Result<EntryView<'_>, ControlError> {
        self.loaded_ref()?.table(table)?.get(key)
    }

    /// All entries of a table, ordered by key.
    pub fn entries(
        &self,
        table: TableIndex,
    ) -> Result<impl Iterator<Item = EntryView<'_>>, ControlError> {
        Ok(self.loaded_ref()?.table(table)?.iter())
    }

    /// How many entries a table holds.
    pub fn entry_count(&self, table: TableIndex) -> Result<usize, ControlError> {
        Ok(self.loaded_ref()?.table(table)?.len())
    }

    /// The default action of a table; none does nothing.
    pub fn default_action(&self, table: TableIndex) -> Result<Option<&ActionCall>, ControlError> {
        Ok(self.loaded_ref()?.table(table)?.default_action())
    }

    /// Changes the default action of a table, as far as the program leaves it free.
    pub fn set_default_action(
        &mut self,
        table: TableIndex,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        let loaded = self.loaded_mut()?;
        let spec = &loaded.table(table)?.spec;
        loaded.check_call(&spec.name, &spec.actions, &call)?;
        loaded.table_mut(table)?.set_default(call)
    }

    /// Puts back the default action that the program declares.
    pub fn reset_default_action(&mut self, table: TableIndex) -> Result<(), ControlError> {
        self.loaded_mut()?.table_mut(table)?.reset_default();
        Ok(())
    }

    /// Sets the direct counter of an entry.
    pub fn set_direct_count(
        &mut self,
        table: TableIndex,
        key: &MatchKey,
        count: CounterData,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.table_mut(table)?.set_counter(key, count)
    }

    /// Adds a member to an action profile.
    pub fn insert_member(
        &mut self,
        profile: ProfileIndex,
        id: MemberId,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.profile_for_call(profile, &call)?.insert_member(id, call)
    }

    /// Changes what a member calls, for everything that refers to it.
    pub fn modify_member(
        &mut self,
        profile: ProfileIndex,
        id: MemberId,
        call: ActionCall,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.profile_for_call(profile, &call)?.modify_member(id, call)
    }

    /// Removes a member that nothing refers to.
    pub fn delete_member(
        &mut self,
        profile: ProfileIndex,
        id: MemberId,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.profile_mut(profile)?.delete_member(id)
    }

    /// What a member calls.
    pub fn member(&self, profile: ProfileIndex, id: MemberId) -> Result<&ActionCall, ControlError> {
        self.loaded_ref()?.profile(profile)?.member(id).ok_or(ControlError::NotFound)
    }

    /// All members of a profile, by number.
    pub fn members(
        &self,
        profile: ProfileIndex,
    ) -> Result<impl Iterator<Item = (MemberId, &ActionCall)>, ControlError> {
        Ok(self.loaded_ref()?.profile(profile)?.members())
    }

    /// How many members a profile has.
    pub fn member_count(&self, profile: ProfileIndex) -> Result<usize, ControlError> {
        Ok(self.loaded_ref()?.profile(profile)?.member_count())
    }

    /// Adds a group of existing members.
    pub fn insert_group(
        &mut self,
        profile: ProfileIndex,
        id: GroupId,
        members: Vec<GroupMember>,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.selector_mut(profile)?.insert_group(id, members)
    }

    /// Replaces a group's members, in one step for the packets.
    pub fn modify_group(
        &mut self,
        profile: ProfileIndex,
        id: GroupId,
        members: Vec<GroupMember>,
    ) -> Result<(), ControlError> {
        self.loaded_mut()?.selector_mut(profile)?.modify_group(id, members)
    }

    /// Removes a group that no entry refers to.
    pub fn delete_group(&mut self, profile: ProfileIndex, id: GroupId) -> Result<(), ControlError> {
        self.loaded_mut()?.profile_mut(profile)?.delete_group(id)
    }

    /// A group's members, as they were given.
    pub fn group(
        &self,
        profile: ProfileIndex,
        id: GroupId,
    ) -> Result<&[GroupMember], ControlError> {
        self.loaded_ref()?.profile(profile)?.group(id).ok_or(ControlError::NotFound)
    }

    /// How many groups a profile has.
    pub fn group_count(&self, profile: ProfileIndex) -> Result<usize, ControlError> {
        Ok(self.loaded_ref()?.profile(profile)?.group_count())
    }

    /// All cells of an indirect counter.
    pub fn counter_cells(&self, counter: CounterIndex) -> Result<&[CounterData], ControlError> {
        let counters = &self.loaded_ref()?.arrays.counters;
        let cells = counters.get(counter.0 as usize);
        cells.map(Vec::as_slice).ok_or(no_such_object("counter", counter.0))
    }

    /// Sets one cell of an indirect counter.
    pub fn set_counter(
        &mut self,
        counter: CounterIndex,
        cell: usize,
        count: CounterData,
    ) -> Result<(), ControlError> {
        let counters = &mut self.loaded_mut()?.arrays.counters;
        let cells =
            counters.get_mut(counter.0 as usize).ok_or(no_such_object("counter", counter.0))?;
        let size = cells.len();
        *cells.get_mut(cell).ok_or(ControlError::NoSuchCell { cell, size })? = count;
        Ok(())
    }

    pub(super) fn loaded_ref(&self) -> Result<&LoadedProgram, ControlError> {
        self.loaded.as_ref().ok_or(ControlError::NoProgram)
    }

    pub(super) fn loaded_mut(&mut self) -> Result<&mut LoadedProgram, ControlError> {
        self.loaded.as_mut().ok_or(ControlError::NoProgram)
    }
}

impl LoadedProgram {
    fn table(&self, table: TableIndex) -> Result<&MatchTable, ControlError> {
        self.tables.get(table.0 as usize).ok_or(no_such_object("table", table.0))
    }

    pub(super) fn table_mut(&mut self, table: TableIndex) -> Result<&mut MatchTable, ControlError> {
        self.tables.get_mut(table.0 as usize).ok_or(no_such_object("table", table.0))
    }

    fn profile(&self, profile: ProfileIndex) -> Result<&ActionProfile, ControlError> {
        self.profiles.get(profile.0 as usize).ok_or(no_such_object("action profile", profile.0))
    }

    fn profile_mut(&mut self, profile: ProfileIndex) -> Result<&mut ActionProfile, ControlError> {
        self.profiles.get_mut(profile.0 as usize).ok_or(no_such_object("action profile", profile.0))
    }

    /// A profile that has groups.
    fn selector_mut(&mut self, profile: ProfileIndex) -> Result<&mut ActionProfile, ControlError> {
        let specs = &self.program.profiles;
        let spec =
            specs.get(profile.0 as usize).ok_or(no_such_object("action profile", profile.0))?;
        if !spec.with_selector {
            return Err(ControlError::TargetKind(
                "single members only: its profile has no selector",
            ));
        }
        self.profile_mut(profile)
    }

    /// A profile whose members may make this call.
    fn profile_for_call(
        &mut self,
        profile: ProfileIndex,
        call: &ActionCall,
    ) -> Result<&mut ActionProfile, ControlError> {
        let specs = &self.program.profiles;
        let spec =
            specs.get(profile.0 as usize).ok_or(no_such_object("action profile", profile.0))?;
        self.check_call(&spec.name, &spec.actions, call)?;
        self.profile_mut(profile)
    }

    fn check_target(&self, table: TableIndex, target: &TableAction) -> Result<(), ControlError> {
        let spec = &self.table(table)?.spec;
        match (spec.profile, target) {
            (None, TableAction::Action(call)) => self.check_call(&spec.name, &spec.actions, call),
            (None, _) => Err(ControlError::TargetKind("actions: it has no action profile")),
            (Some(profile), target) => self.profile(profile)?.check_target(target),
        }
    }

    fn check_call(
        &self,
        owner: &str,
        allowed: &[ActionIndex],
        call: &ActionCall,
    ) -> Result<(), ControlError> {
        let specs = &self.program.action_specs;
        let spec =
            specs.get(call.action.0 as usize).ok_or(no_such_object("action", call.action.0))?;
        if !allowed.contains(&call.action) {
            return Err(ControlError::ForeignAction {
                action: spec.name.clone(),
                table: owner.to_owned(),
            });
        }
        check_arguments(spec, &call.arguments)
    }

    fn add_reference(&mut self, table: TableIndex, target: &TableAction) {
        if let Some(profile) = self.table_profile(table) {
            profile.add_reference(target);
        }
    }

    fn remove_reference(&mut self, table: TableIndex, target: &TableAction) {
        if let Some(profile) = self.table_profile(table) {
            profile.remove_reference(target);
        }
    }

    fn table_profile(&mut self, table: TableIndex) -> Option<&mut ActionProfile> {
        let profile = self.tables.get(table.0 as usize)?.spec.profile?;
        self.profiles.get_mut(profile.0 as usize)
    }
}

pub(super) fn no_such_object(what: &'static str, index: u32) -> ControlError {
    ControlError::NoSuchObject { what, index }
}

//! Digests on their way to the controller, and value sets on their way from it.
//!
//! [`DigestSubscriptions`] is sans I/O: digests and times come in, lists to send go out (P4Runtime
//! §9.6 and §16.5). A digest that has been sent is not sent again until it is acknowledged or its
//! acknowledgement timeout has passed.

use std::collections::{BTreeMap, BTreeSet};

use p4rt::entity::Entity;
use p4rt::p4_data::Data;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;

use super::bytestring;
use super::entity::{decode_field, wildcard_match};
use super::entity_reader::{EntityReader, ReadResult, wrap_entity};
use super::entity_writer::{EntityWriter, require_modify};
use super::error::RequestFailure;
use crate::p4runtime::p4info::{DigestSchema, PipelineSchema, ValueSetSchema};
use switch::Digest;
use switch::KeyField;
use switch::LearnListIndex;
use switch::Nanos;
use switch::bit_mask;

/// All digests that controllers have configured.
#[derive(Debug, Default)]
pub(super) struct DigestSubscriptions {
    subscriptions: BTreeMap<LearnListIndex, DigestSubscription>,
    /// The number of the list sent last.
    sent: u64,
}

/// One kind of digest.
#[derive(Debug)]
struct DigestSubscription {
    config: p4rt::digest_entry::Config,
    waiting: Vec<Vec<u128>>,
    /// When the first of those came.
    since: Nanos,
    /// Waiting, or sent and not yet acknowledged.
    known: BTreeSet<Vec<u128>>,
    unacknowledged: BTreeMap<u64, (Nanos, Vec<Vec<u128>>)>,
}

impl DigestSubscriptions {
    /// Takes in one digest.
    pub(super) fn add_digest(&mut self, digest: Digest, now: Nanos) {
        let Some(list) = self.subscriptions.get_mut(&digest.list) else {
            return;
        };
        if list.known.insert(digest.values.clone()) {
            if list.waiting.is_empty() {
                list.since = now;
            }
            list.waiting.push(digest.values);
        }
    }

    /// The lists that are full or have waited long enough.
    pub(super) fn take_due_lists(
        &mut self,
        now: Nanos,
    ) -> Vec<(LearnListIndex, u64, Vec<Vec<u128>>)> {
        let mut due = Vec::new();
        for (index, list) in &mut self.subscriptions {
            list.expire_unacknowledged(now);
            while let Some(values) = list.take_due_values(now) {
                self.sent += 1;
                let deadline = now.saturating_add(nanos_or_zero(list.config.ack_timeout_ns));
                list.unacknowledged.insert(self.sent, (deadline, values.clone()));
                due.push((*index, self.sent, values));
            }
        }
        due
    }

    /// Whether a list waits to be sent or to be acknowledged.
    pub(super) fn awaits_time(&self) -> bool {
        let mut lists = self.subscriptions.values();
        lists.any(|list| !list.waiting.is_empty() || !list.unacknowledged.is_empty())
    }

    /// Handles the acknowledgement of a list by a controller.
    pub(super) fn acknowledge_list(
        &mut self,
        index: LearnListIndex,
        id: u64,
    ) -> Result<(), RequestFailure> {
        let list = self.subscriptions.get_mut(&index);
        let sent = list.and_then(|list| Some((list.unacknowledged.remove(&id)?, list)));
        let ((_, values), list) =
            sent.ok_or_else(|| RequestFailure::not_found(format!("no digest list {id} waits")))?;
        // P4Runtime: a digest that was acknowledged is sent again when it occurs again.
        values.iter().for_each(|values| {
            list.known.remove(values);
        });
        Ok(())
    }

    fn config(&self, index: LearnListIndex) -> Option<&p4rt::digest_entry::Config> {
        self.subscriptions.get(&index).map(|list| &list.config)
    }
}

impl DigestSubscription {
    fn new(config: p4rt::digest_entry::Config) -> Self {
        Self {
            config,
            waiting: Vec::new(),
            since: 0,
            known: BTreeSet::new(),
            unacknowledged: BTreeMap::new(),
        }
    }

    /// What is to be sent now; a size of 0 sets no limit, a timeout of 0 does not wait.
    fn take_due_values(&mut self, now: Nanos) -> Option<Vec<Vec<u128>>> {
        let size = usize::try_from(self.config.max_list_size).unwrap_or(0);
        let is_full = size > 0 && self.waiting.len() >= size;
        let waited = now.saturating_sub(self.since) >= nanos_or_zero(self.config.max_timeout_ns);
        if self.waiting.is_empty() || !(is_full || waited) {
            return None;
        }
        let taken = if size > 0 { size.min(self.waiting.len()) } else { self.waiting.len() };
        Some(self.waiting.drain(..taken).collect())
    }

    fn expire_unacknowledged(&mut self, now: Nanos) {
        let expired = self.unacknowledged.extract_if(.., |_, (deadline, _)| now >= *deadline);
        for (_, (_, values)) in expired {
            for values in values {
                self.known.remove(&values);
            }
        }
    }
}

fn nanos_or_zero(signed: i64) -> Nanos {
    Nanos::try_from(signed).unwrap_or(0)
}

impl EntityWriter<'_> {
    /// Configures whether and how a digest is sent to controllers.
    pub(super) fn write_digest(
        &mut self,
        kind: Kind,
        digest: &p4rt::DigestEntry,
    ) -> Result<(), RequestFailure> {
        let index = find_digest(self.schema, digest.digest_id)?.index;
        let lists = &mut self.metadata.digests.subscriptions;
        match (kind, lists.contains_key(&index)) {
            (Kind::Insert, true) => Err(RequestFailure::new(
                tonic::Code::AlreadyExists,
                "the digest is configured already",
            )),
            (Kind::Modify | Kind::Delete, false) => {
                Err(RequestFailure::not_found("the digest is not configured"))
            }
            (Kind::Delete, _) => {
                lists.remove(&index);
                Ok(())
            }
            _ => {
                let Some(config) = digest.config else {
                    return Err(RequestFailure::invalid_argument("the config is missing"));
                };
                lists.insert(index, DigestSubscription::new(config));
                Ok(())
            }
        }
    }

    /// Replaces the members of a value set.
    pub(super) fn write_value_set(
        &mut self,
        kind: Kind,
        set: &p4rt::ValueSetEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "ValueSetEntry")?;
        let schema = find_value_set(self.schema, set.value_set_id)?;
        let members = set
            .members
            .iter()
            .map(|member| decode_member(schema, member))
            .collect::<Result<Vec<_>, _>>()?;
        self.device.set_value_set(schema.index, &members)?;
        self.metadata.value_sets.insert(set.value_set_id, set.clone());
        Ok(())
    }
}

impl EntityReader<'_> {
    pub(super) fn read_digests(self, query: &p4rt::DigestEntry) -> ReadResult {
        let wanted = match query.digest_id {
            0 => self.schema.digests.iter().collect(),
            id => vec![(&query.digest_id, find_digest(self.schema, id)?)],
        };
        let configured = wanted.into_iter().filter_map(|(&digest_id, schema)| {
            let config = Some(*self.metadata.digests.config(schema.index)?);
            Some(wrap_entity(Entity::DigestEntry(p4rt::DigestEntry { digest_id, config })))
        });
        Ok(configured.collect())
    }

    pub(super) fn read_value_sets(self, query: &p4rt::ValueSetEntry) -> ReadResult {
        let ids: Vec<u32> = match query.value_set_id {
            0 => self.schema.value_sets.keys().copied().collect(),
            id => vec![find_value_set(self.schema, id).map(|_| id)?],
        };
        let mut found = Vec::new();
        for value_set_id in ids {
            let written = self.metadata.value_sets.get(&value_set_id).cloned();
            let empty = p4rt::ValueSetEntry { value_set_id, members: Vec::new() };
            found.push(wrap_entity(Entity::ValueSetEntry(written.unwrap_or(empty))));
        }
        Ok(found)
    }
}

/// The values of a digest in the form of its type in the P4Info.
pub(super) fn encode_digest(schema: &DigestSchema, values: &[u128]) -> p4rt::P4Data {
    match (schema.is_struct, values) {
        (false, [value]) => bitstring_data(value),
        _ => {
            let members = values.iter().map(bitstring_data).collect();
            p4rt::P4Data { data: Some(Data::Struct(p4rt::P4StructLike { members })) }
        }
    }
}

fn bitstring_data(value: &u128) -> p4rt::P4Data {
    p4rt::P4Data { data: Some(Data::Bitstring(bytestring::encode_bytestring(*value))) }
}

/// The digest with this id.
pub(super) fn find_digest(
    schema: &PipelineSchema,
    id: u32,
) -> Result<&DigestSchema, RequestFailure> {
    let found = schema.digests.get(&id);
    found.ok_or_else(|| schema.unknown_id("digest", id))
}

fn find_value_set(schema: &PipelineSchema, id: u32) -> Result<&ValueSetSchema, RequestFailure> {
    let found = schema.value_sets.get(&id);
    found.ok_or_else(|| RequestFailure::invalid_argument(format!("there is no value set {id}")))
}

fn decode_member(
    schema: &ValueSetSchema,
    member: &p4rt::ValueSetMember,
) -> Result<Vec<(u128, u128)>, RequestFailure> {
    for given in &member.r#match {
        if schema.fields.iter().all(|field| field.id != given.field_id) {
            let message = format!("the value set has no match field {}", given.field_id);
            return Err(RequestFailure::invalid_argument(message));
        }
    }
    let mut parts = Vec::new();
    for field in &schema.fields {
        let key = match member.r#match.iter().find(|given| given.field_id == field.id) {
            Some(given) => decode_field(field, given)?,
            None => wildcard_match(field)?,
        };
        parts.push(masked_value(key, field.bits)?);
    }
    Ok(parts)
}

fn masked_value(field: KeyField, bits: u32) -> Result<(u128, u128), RequestFailure> {
    let all = bit_mask(bits);
    Ok(match field {
        KeyField::Exact(value) | KeyField::Optional(Some(value)) => (value, all),
        KeyField::Optional(None) => (0, 0),
        KeyField::Lpm { value, prefix } => (value, all & !bit_mask(bits - prefix)),
        KeyField::Ternary { value, mask } => (value, mask),
        KeyField::Range { .. } => {
            return Err(RequestFailure::unimplemented("a range in a value set"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: LearnListIndex = LearnListIndex(0);

    fn learning(
        max_timeout_ns: i64,
        max_list_size: i32,
        ack_timeout_ns: i64,
    ) -> DigestSubscriptions {
        let config = p4rt::digest_entry::Config { max_timeout_ns, max_list_size, ack_timeout_ns };
        DigestSubscriptions {
            subscriptions: BTreeMap::from([(LIST, DigestSubscription::new(config))]),
            sent: 0,
        }
    }

    fn learn(learning: &mut DigestSubscriptions, value: u128, now: Nanos) {
        learning.add_digest(Digest { list: LIST, values: vec![value] }, now);
    }

    #[test]
    fn a_list_is_sent_when_it_is_full_or_has_waited() {
        let mut learning = learning(100, 2, 1000);
        learn(&mut learning, 1, 10);
        assert!(learning.take_due_lists(50).is_empty());
        learn(&mut learning, 2, 60);
        assert_eq!(learning.take_due_lists(60), [(LIST, 1, vec![vec![1], vec![2]])]);
        learn(&mut learning, 3, 70);
        assert!(learning.take_due_lists(169).is_empty());
        assert_eq!(learning.take_due_lists(170), [(LIST, 2, vec![vec![3]])]);
    }

    #[test]
    fn a_digest_is_sent_again_after_its_acknowledgement_or_its_timeout() {
        let mut learning = learning(0, 1, 1000);
        for (now, is_sent) in [(0, true), (10, false), (999, false), (1000, true), (1001, false)] {
            learning.take_due_lists(now);
            learn(&mut learning, 7, now);
            assert_eq!(!learning.take_due_lists(now).is_empty(), is_sent, "at {now}");
        }
        assert_eq!(learning.acknowledge_list(LIST, 2), Ok(()));
        assert!(learning.acknowledge_list(LIST, 2).is_err());
        learn(&mut learning, 7, 1002);
        assert_eq!(learning.take_due_lists(1002).len(), 1);
    }
}

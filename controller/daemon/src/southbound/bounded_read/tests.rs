//! Messages within the bounds of a read, and beyond each.

use p4::ForwardingPipeline;
use p4::codec;
use p4::fabric::table::PORT_DOWN;
use p4::fabric::{PortNumber, port_down};
use proptest::prelude::*;
use prost::bytes::BufMut;

use super::*;

const BYTES_MAX: usize = 16 << 20;

fn table_entity(table_id: u32, metadata: Vec<u8>) -> p4rt::Entity {
    let row = codec::encode_entry(&port_down(PortNumber::CPU));
    let entry = p4rt::TableEntry { table_id, metadata, ..row };
    p4rt::Entity { entity: Some(p4rt::entity::Entity::TableEntry(entry)) }
}

fn encode(entities: Vec<p4rt::Entity>) -> Bytes {
    p4rt::ReadResponse { entities }.encode_to_vec().into()
}

/// The entities that are taken from messages, or why they are refused.
fn take_all(messages: impl IntoIterator<Item = Bytes>) -> Result<Vec<p4rt::Entity>, String> {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let mut budget = ReadBudget::new(p4info, BYTES_MAX, &[]);
    let mut taken = Vec::new();
    for message in messages {
        let mut take = |entity| {
            taken.push(entity);
            Ok(())
        };
        budget.take_message(message, &mut take).map_err(|error| error.to_string())?;
    }
    Ok(taken)
}

#[test]
fn entities_are_those_of_the_message() {
    let rows: Vec<_> = (0..50).map(|row| table_entity(row, vec![7; 3 * row as usize])).collect();
    let messages = rows.chunks(20).map(|rows| encode(rows.to_vec()));
    assert_eq!(take_all(messages), Ok(rows));
}

#[test]
fn a_message_beyond_a_bound_is_refused() {
    let check = |messages: Vec<Bytes>, expected: &str| {
        let error = take_all(messages).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    // The smallest message with the most entities: each takes two bytes and would become 200.
    let empty = Bytes::from([ENTITIES_KEY, 0].repeat(READ_ENTITIES + 1));
    check(vec![empty], "200000 entities");
    let long = table_entity(7, vec![0; 60_000]);
    check(vec![encode(vec![long; 300])], "messages.read_max");
    check(vec![encode(vec![table_entity(7, vec![0; ENTITY_BYTES])])], "an entity of 65");
    let rows = encode(vec![table_entity(PORT_DOWN.0, Vec::new()); 514]);
    check(vec![rows], "than it holds");
    check(vec![Bytes::from_static(&[0x12, 0])], "something else than entities");
    check(vec![Bytes::from_static(&[ENTITIES_KEY, 9, 1])], "ends outside of its message");
    check(vec![Bytes::from_static(&[ENTITIES_KEY, 1, 0xff])], "an invalid entity");
}

#[test]
fn a_row_that_is_asked_for_may_come_with_its_table() {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let row = table_entity(PORT_DOWN.0, Vec::new());
    let answer = |asked: usize, rows: usize| {
        let mut budget = ReadBudget::new(p4info, BYTES_MAX, &vec![row.clone(); asked]);
        budget.take_message(encode(vec![row.clone(); rows]), &mut |_| Ok(())).is_ok()
    };
    assert!(answer(0, 513) && !answer(0, 514), "512 rows and a default");
    assert!(answer(3, 516) && !answer(3, 517));
}

proptest! {
    /// Reading entity by entity gives what prost reads from the whole, for all bytes that begin
    /// like an answer.
    #[test]
    fn any_bytes_are_read_as_by_prost_or_refused(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        cut in 0..8_usize,
    ) {
        let mut bytes = Vec::new();
        for body in &bodies {
            bytes.put_u8(ENTITIES_KEY);
            bytes.put_u8(body.len() as u8);
            bytes.extend_from_slice(body);
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let whole = p4rt::ReadResponse::decode(&bytes[..]).ok().map(|whole| whole.entities);
        prop_assert_eq!(take_all([bytes.into()]).ok(), whole);
    }
}

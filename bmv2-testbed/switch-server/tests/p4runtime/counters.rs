//! Counters by cell and counters by entry.

use p4rt::entity::Entity;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use crate::entities::{read_table, start, whole};
use crate::samples::{Samples, delete, id_of, insert, modify, update};

fn counter_entry(samples: &Samples, index: Option<i64>, packets: Option<i64>) -> p4rt::Entity {
    let entry = p4rt::CounterEntry {
        counter_id: samples.info.counters[0].preamble.as_ref().unwrap().id,
        index: index.map(|index| p4rt::Index { index }),
        data: packets.map(|packet_count| p4rt::CounterData { packet_count, byte_count: 0 }),
    };
    p4rt::Entity { entity: Some(Entity::CounterEntry(entry)) }
}

#[tokio::test]
async fn counters_are_read_and_set() {
    let (_bench, mut controller, samples) = start().await;
    let size = samples.info.counters[0].size;
    let cell = |index, packets| counter_entry(&samples, index, packets);
    let cases = vec![
        (Code::Ok, update(Kind::Modify, cell(Some(3), Some(7)))),
        (Code::InvalidArgument, update(Kind::Insert, cell(Some(3), Some(7)))),
        (Code::InvalidArgument, update(Kind::Modify, cell(Some(-1), Some(7)))),
        (Code::OutOfRange, update(Kind::Modify, cell(Some(size), Some(7)))),
        (Code::OutOfRange, update(Kind::Modify, cell(Some(i64::MAX), Some(7)))),
    ];
    let (expected, updates): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(controller.codes(updates).await, expected);
    let found = controller.read(vec![cell(Some(3), None)]).await.unwrap();
    assert_eq!(found, [cell(Some(3), Some(7))]);
    let found = controller.read(vec![cell(None, None)]).await.unwrap();
    assert_eq!(found.len(), usize::try_from(size).unwrap());
    assert!(controller.read(vec![cell(Some(size), None)]).await.is_err());
}

#[tokio::test]
async fn direct_counters_come_with_the_entry_or_alone() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("flow_pin");
    let data = p4rt::CounterData { packet_count: 4, byte_count: 400 };
    let entry = p4rt::TableEntry { counter_data: Some(data), ..samples.entry(table, 1, 0) };
    controller.write(vec![insert(&entry)]).await.unwrap();
    let plain = p4rt::TableEntry { counter_data: None, ..entry.clone() };
    let found = read_table(&mut controller, whole(id_of(table))).await;
    assert_eq!(found.as_slice(), std::slice::from_ref(&plain));
    let counted = p4rt::TableEntry {
        counter_data: Some(p4rt::CounterData::default()),
        ..whole(id_of(table))
    };
    assert_eq!(read_table(&mut controller, counted).await, [entry]);

    let key = p4rt::TableEntry { action: None, metadata: Vec::new(), ..plain.clone() };
    let direct = |packet_count| {
        let data = Some(p4rt::CounterData { packet_count, byte_count: 400 });
        let table_entry = Some(key.clone());
        let direct = p4rt::DirectCounterEntry { table_entry, data };
        p4rt::Entity { entity: Some(Entity::DirectCounterEntry(direct)) }
    };
    assert_eq!(controller.read(vec![direct(0)]).await.unwrap(), [direct(4)]);
    controller.write(vec![update(Kind::Modify, direct(9))]).await.unwrap();
    assert_eq!(controller.read(vec![direct(0)]).await.unwrap(), [direct(9)]);
    controller.write(vec![modify(&plain)]).await.unwrap();
    assert_eq!(controller.read(vec![direct(0)]).await.unwrap(), [direct(9)]);
    controller.write(vec![delete(&plain)]).await.unwrap();
    let gone = controller.read(vec![direct(0)]).await.unwrap_err();
    assert_eq!(crate::bench::codes(&gone), [Code::NotFound]);
}

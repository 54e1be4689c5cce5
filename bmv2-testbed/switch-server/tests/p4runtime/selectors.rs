//! Action profiles with a selector: one-shots, and members and groups.

use p4rt::entity::Entity;
use p4rt::table_action::Type as Action;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use crate::bench::Controller;
use crate::entities::{read_table, start, whole};
use crate::samples::{Samples, delete, id_of, insert, modify, one_shot, update};

#[tokio::test]
async fn selectors_take_one_shots_with_weights() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("ecmp_group");
    let choice = |n, weight| (samples.action(table, n, 0), weight);
    let entry = |n, choices| {
        let action = Action::ActionProfileActionSet(one_shot(choices));
        let action = Some(p4rt::TableAction { r#type: Some(action) });
        p4rt::TableEntry { action, ..samples.entry(table, n, 0) }
    };
    let first = entry(1, vec![choice(1, 2), choice(2, 1), choice(2, 1)]);
    let second = entry(2, vec![choice(3, 1)]);
    controller.write(vec![insert(&first), insert(&second)]).await.unwrap();
    let query = whole(id_of(table));
    assert_eq!(read_table(&mut controller, query.clone()).await, [first, second.clone()]);
    let wider = entry(1, (1..=8).map(|n| choice(n, 8)).collect());
    controller.write(vec![modify(&wider)]).await.unwrap();
    assert_eq!(read_table(&mut controller, query.clone()).await, [wider.clone(), second.clone()]);

    let max = samples.info.action_profiles[0].max_group_size;
    let refused = [
        entry(3, vec![choice(1, 0)]),
        entry(3, vec![choice(1, -1)]),
        entry(3, vec![choice(1, max), choice(2, 1)]),
    ];
    let updates = refused.iter().map(insert).collect();
    assert_eq!(controller.codes(updates).await, [Code::InvalidArgument; 3]);
    assert_eq!(controller.codes(vec![insert(&second)]).await, [Code::AlreadyExists]);
    assert_eq!(read_members(&mut controller).await, 0);

    // While one-shots are there, nothing else is; afterwards the numbers are free again.
    let member = member(&samples, 1, 1);
    assert_eq!(controller.codes(vec![insert_of(&member)]).await, [Code::InvalidArgument]);
    controller.write(vec![delete(&wider), delete(&second), insert_of(&member)]).await.unwrap();
    assert_eq!(read_members(&mut controller).await, 1);
    assert_eq!(controller.codes(vec![insert(&second)]).await, [Code::InvalidArgument]);
}

fn member(samples: &Samples, member_id: u32, n: u64) -> p4rt::Entity {
    let action_profile_id = samples.info.action_profiles[0].preamble.as_ref().unwrap().id;
    let action = Some(samples.action(samples.table("ecmp_group"), n, 0));
    let member = p4rt::ActionProfileMember { action_profile_id, member_id, action };
    p4rt::Entity { entity: Some(Entity::ActionProfileMember(member)) }
}

fn group(samples: &Samples, group_id: u32, members: &[(u32, i32)]) -> p4rt::Entity {
    let profile = &samples.info.action_profiles[0];
    let member = |&(member_id, weight): &(u32, i32)| p4rt::action_profile_group::Member {
        member_id,
        weight,
        watch_kind: None,
    };
    let group = p4rt::ActionProfileGroup {
        action_profile_id: profile.preamble.as_ref().unwrap().id,
        group_id,
        members: members.iter().map(member).collect(),
        max_size: profile.max_group_size,
    };
    p4rt::Entity { entity: Some(Entity::ActionProfileGroup(group)) }
}

fn insert_of(entity: &p4rt::Entity) -> p4rt::Update {
    update(Kind::Insert, entity.clone())
}

async fn read_members(controller: &mut Controller) -> usize {
    let all = Entity::ActionProfileMember(p4rt::ActionProfileMember::default());
    controller.read(vec![p4rt::Entity { entity: Some(all) }]).await.unwrap().len()
}

#[tokio::test]
async fn selectors_take_members_and_groups() {
    let (_bench, mut controller, samples) = start().await;
    let table = samples.table("ecmp_group");
    let [one, two] = [1, 2].map(|id| member(&samples, id, u64::from(id)));
    let pair = group(&samples, 1, &[(1, 3), (2, 1)]);
    let entry = |action| p4rt::TableEntry {
        action: Some(p4rt::TableAction { r#type: Some(action) }),
        ..samples.entry(table, 1, 0)
    };
    let grouped = entry(Action::ActionProfileGroupId(1));
    let dangling = group(&samples, 2, &[(9, 1)]);
    let twice = group(&samples, 2, &[(1, 1), (1, 1)]);
    let cases = vec![
        (Code::Ok, insert_of(&one)),
        (Code::Ok, insert_of(&two)),
        (Code::AlreadyExists, insert_of(&two)),
        (Code::Ok, insert_of(&pair)),
        (Code::NotFound, insert_of(&dangling)),
        (Code::InvalidArgument, insert_of(&twice)),
        (Code::Ok, insert(&grouped)),
        (Code::NotFound, modify(&entry(Action::ActionProfileGroupId(9)))),
        (Code::NotFound, modify(&entry(Action::ActionProfileMemberId(9)))),
        (Code::FailedPrecondition, update(Kind::Delete, one.clone())),
        (Code::FailedPrecondition, update(Kind::Delete, pair.clone())),
        (Code::Ok, update(Kind::Modify, group(&samples, 1, &[(2, 1)]))),
        (Code::Ok, update(Kind::Delete, one)),
        (Code::Ok, update(Kind::Modify, member(&samples, 2, 5))),
        (Code::Ok, modify(&entry(Action::ActionProfileMemberId(2)))),
        (Code::Ok, update(Kind::Delete, pair)),
    ];
    let (expected, updates): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(controller.codes(updates).await, expected);
    let query = whole(id_of(table));
    let found = read_table(&mut controller, query).await;
    assert_eq!(found, [entry(Action::ActionProfileMemberId(2))]);
}

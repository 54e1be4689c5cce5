//! Pipelines: each action of `SetForwardingPipelineConfig`, and mismatched artefacts.

use p4rt::get_forwarding_pipeline_config_request::ResponseType;
use p4rt::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::config_v1::p4_data_type_spec::TypeSpec;
use p4runtime_proto::config_v1::p4_new_type_spec::Representation;
use p4runtime_proto::config_v1::{
    ActionProfile, Digest, P4DataTypeSpec, P4Info, P4NamedType, P4NewTypeSpec,
    P4NewTypeTranslation, Preamble, Register, Table,
};
use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use tonic::Code;

use crate::bench::{Bench, Controller, DEVICE, config, config_of, soon};
use crate::samples::{Samples, insert, table_entry};

async fn entry_count(controller: &mut Controller) -> usize {
    let all = table_entry(p4rt::TableEntry::default());
    controller.read(vec![all]).await.unwrap().len()
}

#[tokio::test]
async fn nothing_is_written_or_read_before_a_pipeline() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let write = controller.write(Vec::new()).await.unwrap_err();
    let read = controller.read(Vec::new()).await.unwrap_err();
    assert_eq!([write.code(), read.code()], [Code::FailedPrecondition; 2]);
    assert_eq!(controller.cookie().await, None);
}

/// p4-utils asks for the pipeline and pushes its own when that is an error.
#[tokio::test]
async fn without_a_pipeline_the_answer_is_empty_and_on_bmv2_an_error() {
    let asked = async |dialect| {
        let bench = Bench::start(ServiceOptions { dialect, ..ServiceOptions::default() }).await;
        let request = p4rt::GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            ..p4rt::GetForwardingPipelineConfigRequest::default()
        };
        let mut client = bench.client().await;
        let answer = soon(client.get_forwarding_pipeline_config(request)).await;
        answer.map(|answer| answer.into_inner().config).map_err(|status| status.code())
    };
    assert_eq!(asked(SwitchDialect::Specification).await, Ok(None));
    assert_eq!(asked(SwitchDialect::Pins).await, Ok(None));
    assert_eq!(asked(SwitchDialect::Bmv2).await, Err(Code::FailedPrecondition));
}

/// The P4 tutorials wrap the JSON; the same bytes are read back.
#[tokio::test]
async fn a_program_in_the_wrapper_of_old_clients_is_loaded() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let mut wrapped = config(4);
    // `P4DeviceConfig { reassign: true, device_data: JSON }`.
    let json = std::mem::take(&mut wrapped.p4_device_config);
    wrapped.p4_device_config = vec![0x08, 0x01, 0x1a];
    prost::encoding::encode_varint(json.len() as u64, &mut wrapped.p4_device_config);
    wrapped.p4_device_config.extend(json);
    controller.set(Action::VerifyAndCommit, Some(wrapped.clone())).await.unwrap();
    let request = p4rt::GetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        ..p4rt::GetForwardingPipelineConfigRequest::default()
    };
    let answer = soon(controller.client.get_forwarding_pipeline_config(request)).await;
    assert_eq!(answer.unwrap().into_inner().config, Some(wrapped));
}

#[tokio::test]
async fn a_request_that_is_too_large_exhausts_a_resource() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let mut large = config(1);
    large.p4_device_config.resize(33 << 20, b' ');
    let refused = controller.set(Action::VerifyAndCommit, Some(large)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

#[tokio::test]
async fn a_commit_wipes_and_a_reconciliation_keeps() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.primary().await;
    let samples = Samples::new();
    let tables = samples.info.tables.iter().filter(|table| !table.match_fields.is_empty());
    let entries: Vec<_> = tables.map(|table| samples.entry(table, 1, 0)).collect();
    controller.write(entries.iter().map(insert).collect()).await.unwrap();
    controller.set(Action::ReconcileAndCommit, Some(config(2))).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, entries.len());
    assert_eq!(controller.cookie().await, Some(2));
    controller.set(Action::Verify, Some(config(9))).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, entries.len());
    controller.commit(3).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, 0);
    assert_eq!(controller.cookie().await, Some(3));
}

#[tokio::test]
async fn a_saved_pipeline_is_written_to_before_it_runs() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.primary().await;
    let samples = Samples::new();
    let entry = samples.entry(samples.table("local_host"), 1, 0);
    controller.write(vec![insert(&entry)]).await.unwrap();
    let missing = controller.set(Action::Commit, None).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);

    controller.set(Action::VerifyAndSave, Some(config(2))).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, 0);
    let entries = [2, 3].map(|n| samples.entry(samples.table("local_host"), n, 0));
    controller.write(entries.iter().map(insert).collect()).await.unwrap();
    let superfluous = controller.set(Action::Commit, Some(config(2))).await.unwrap_err();
    assert_eq!(superfluous.code(), Code::InvalidArgument);
    controller.set(Action::Commit, None).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, 2);
}

#[tokio::test]
async fn the_parts_asked_for_come_back() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.primary().await;
    for (parts, info, device_config) in [
        (ResponseType::All, true, true),
        (ResponseType::CookieOnly, false, false),
        (ResponseType::P4infoAndCookie, true, false),
        (ResponseType::DeviceConfigAndCookie, false, true),
    ] {
        let request = p4rt::GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            response_type: parts as i32,
        };
        let call = controller.client.get_forwarding_pipeline_config(request);
        let found = soon(call).await.unwrap().into_inner().config.unwrap();
        let sent = config(1);
        assert_eq!(found.p4info, sent.p4info.filter(|_| info), "{parts:?}");
        assert_eq!(!found.p4_device_config.is_empty(), device_config, "{parts:?}");
        assert_eq!(found.cookie, sent.cookie, "{parts:?}");
    }
}

/// What the switch says of a P4Info changed by `spoil`.
async fn refusal(spoil: impl FnOnce(&mut p4rt::ForwardingPipelineConfig)) -> String {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let mut config = config(1);
    spoil(&mut config);
    let status = controller.set(Action::VerifyAndCommit, Some(config)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    status.message().to_owned()
}

#[tokio::test]
async fn artefacts_that_disagree_are_refused_by_name() {
    let table = |config: &mut p4rt::ForwardingPipelineConfig| -> p4runtime_proto::config_v1::Table {
        config.p4info.as_mut().unwrap().tables[1].clone()
    };
    let renamed = refusal(|config| {
        let tables = &mut config.p4info.as_mut().unwrap().tables;
        tables[1].preamble.as_mut().unwrap().name = "IngressImpl.nowhere".into();
    });
    assert_eq!(
        renamed.await,
        "the P4Info has table IngressImpl.nowhere, the device config has not"
    );
    let widened = refusal(|config| {
        config.p4info.as_mut().unwrap().tables[1].match_fields[0].bitwidth = 10;
    });
    assert_eq!(
        widened.await,
        "table IngressImpl.acl_punt6, match field ingress_port: bitwidth is 10 in the P4Info and 9 \
         in the device config"
    );
    let twice = refusal(|config| {
        let copy = table(config);
        config.p4info.as_mut().unwrap().tables.push(copy);
    });
    assert_eq!(twice.await, "table: id 33554465 is used twice");
    let empty = refusal(|config| config.p4_device_config.clear());
    assert_eq!(empty.await, "the config has no device config");
    let garbled = refusal(|config| config.p4_device_config = b"{".to_vec());
    let why = "device config: not a BMv2 JSON: EOF while parsing an object at line 1 column 1";
    assert_eq!(garbled.await, why);
}

/// The ids of sai.p4 are strings: its P4Info has no widths for them.
#[tokio::test]
async fn a_program_with_translated_ids_is_committed() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(1).await;
    let json = include_bytes!("../../../../p4/sai/sai.json");
    let config = config_of(json, include_str!("../../../../p4/sai/sai.p4info.txtpb"));
    controller.set(Action::VerifyAndCommit, Some(config)).await.unwrap();
    assert_eq!(entry_count(&mut controller).await, 0);
}

/// Sets `state.p4` with its P4Info edited.
async fn set_state_program(edit: impl FnOnce(&mut P4Info)) -> (Bench, Controller) {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.primary().await;
    let json = include_bytes!("../../../switch/tests/programs/state.json");
    let mut config =
        config_of(json, include_str!("../../../switch/tests/programs/state.p4info.txtpb"));
    edit(config.p4info.as_mut().unwrap());
    controller.set(Action::VerifyAndCommit, Some(config)).await.unwrap();
    (bench, controller)
}

fn preamble(id: u32, name: &str) -> Option<Preamble> {
    Some(Preamble { id, name: name.to_owned(), ..Preamble::default() })
}

#[tokio::test]
async fn objects_that_p4c_has_left_out_of_the_json_are_refused_when_they_are_used() {
    let (_bench, mut controller) = set_state_program(|info| {
        let dead = Table { preamble: preamble(0x0200_0077, "c.dead"), ..Table::default() };
        info.tables.push(dead);
        let unused = ActionProfile {
            preamble: preamble(0x1100_0077, "c.unused"),
            with_selector: true,
            ..ActionProfile::default()
        };
        info.action_profiles.push(unused);
        let digest = Digest { preamble: preamble(0x1900_0077, "lost"), ..Digest::default() };
        info.digests.push(digest);
        let register = info.registers[0].clone();
        let kind = TypeSpec::SerializableEnum(P4NamedType { name: "kind_t".to_owned() });
        let type_spec = P4DataTypeSpec { type_spec: Some(kind) };
        info.registers[0] = Register { type_spec: Some(type_spec), ..register };
    })
    .await;
    let entry = p4rt::TableEntry { table_id: 0x0200_0077, ..p4rt::TableEntry::default() };
    assert_eq!(controller.codes(vec![insert(&entry)]).await, [Code::InvalidArgument]);
    assert_eq!(entry_count(&mut controller).await, 0);
}

#[tokio::test]
async fn widths_that_only_the_controller_uses_are_no_contradiction() {
    let translated = P4NewTypeSpec {
        representation: Some(Representation::TranslatedType(P4NewTypeTranslation::default())),
        ..P4NewTypeSpec::default()
    };
    set_state_program(|info| {
        let types = info.type_info.get_or_insert_default();
        types.new_types.insert("port_t".to_owned(), translated);
        let keys = info.tables.iter_mut().flat_map(|table| &mut table.match_fields);
        for key in keys {
            key.bitwidth = 32;
            key.type_name = Some(P4NamedType { name: "port_t".to_owned() });
        }
    })
    .await;
    // A key of type error, or of a type that is translated to strings.
    set_state_program(|info| {
        let keys = info.tables.iter_mut().flat_map(|table| &mut table.match_fields);
        keys.for_each(|key| key.bitwidth = 0);
    })
    .await;
}

//! Dumps as the kernel sends them, and bytes that no kernel sends.

use std::path::Path;

use proptest::prelude::*;

use super::reader::{NldevSocket, has_known_ports};
use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((NLA_HEADER + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    // Kernels set the flag of nested attributes here since 5.2.
    attribute(kind | 0x8000, &parts.concat())
}

fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = request_bytes(kind, sequence, payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An entry with the attributes in the order of `fill_res_qp_entry` (Linux 6.1).
fn entry(local: u32, remote: Option<u32>, owner: Vec<u8>) -> Vec<u8> {
    let remote = remote.map(|remote| attribute(ATTR_RES_RQPN, &remote.to_ne_bytes()));
    let parts = [
        attribute(ATTR_PORT_INDEX, &1_u32.to_ne_bytes()),
        attribute(ATTR_RES_LQPN, &local.to_ne_bytes()),
        remote.unwrap_or_default(),
        // Packet sequence numbers of both queues, and state of path migration.
        attribute(23, &7_u32.to_ne_bytes()),
        attribute(24, &9_u32.to_ne_bytes()),
        attribute(25, &[0]),
        attribute(ATTR_RES_TYPE, &[2]),
        attribute(ATTR_RES_STATE, &[3]),
        owner,
    ];
    nested(ATTR_RES_QP_ENTRY, &parts)
}

fn dump_of(entries: &[Vec<u8>]) -> Vec<u8> {
    let head = [
        attribute(ATTR_DEV_INDEX, &4_u32.to_ne_bytes()),
        attribute(ATTR_DEV_NAME, b"mlx5_0\0"),
        nested(ATTR_RES_QP, entries),
    ];
    message(CMD_RES_QP_GET, 7, &head.concat())
}

#[test]
fn queue_pairs_of_processes_and_of_the_kernel_are_read() {
    let datagram = dump_of(&[
        entry(0x11, Some(0x12), attribute(ATTR_RES_PID, &4321_u32.to_ne_bytes())),
        entry(1, None, attribute(ATTR_RES_KERN_NAME, b"ib_core\0")),
    ]);
    let mut found = DumpState::default();
    parse_queue_pairs(&datagram, 7, &mut found).unwrap();
    assert!(!found.is_complete);
    parse_queue_pairs(&message(NLMSG_DONE, 7, &[0; 4]), 7, &mut found).unwrap();
    assert!(found.is_complete);
    let process = QueuePair {
        port: Some(1),
        local_number: 0x11,
        remote_number: Some(0x12),
        service: QueuePairService::ReliableConnection,
        state: QueuePairState::ReadyToSend,
        pid: Some(4321),
        kernel_owner: None,
    };
    let kernel = QueuePair {
        local_number: 1,
        remote_number: None,
        pid: None,
        kernel_owner: Some("ib_core".to_owned()),
        ..process.clone()
    };
    assert_eq!(found.items, [process, kernel]);
}

#[test]
fn devices_are_read_and_replies_to_other_requests_are_not() {
    let device = [
        attribute(ATTR_DEV_INDEX, &4_u32.to_ne_bytes()),
        attribute(ATTR_DEV_NAME, b"mlx5_0\0"),
        attribute(999, &[1; 9]),
    ];
    let datagram = message(CMD_GET, 3, &device.concat());
    let mut found = DumpState::default();
    parse_devices(&datagram, 2, &mut found).unwrap();
    assert!(found.items.is_empty());
    parse_devices(&datagram, 3, &mut found).unwrap();
    assert_eq!(found.items, [RdmaDevice { index: 4, name: "mlx5_0".to_owned() }]);
}

#[test]
fn a_refusal_and_a_message_that_is_cut_off_are_errors() {
    let refused = message(NLMSG_ERROR, 7, &(-22_i32).to_ne_bytes());
    let error = parse_queue_pairs(&refused, 7, &mut DumpState::default()).unwrap_err();
    assert!(matches!(&error, NldevError::Refused(why) if why.raw_os_error() == Some(22)));
    let whole = dump_of(&[entry(1, None, Vec::new())]);
    let cut = &whole[..whole.len() - 4];
    let error = parse_queue_pairs(cut, 7, &mut DumpState::default()).unwrap_err();
    assert!(matches!(error, NldevError::Message(_)));
}

#[test]
fn requests_are_those_of_the_header_files() {
    // Type 5130 is RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET).
    let request = request_queue_pairs(4, 7);
    let buffer = NetlinkBuffer::new_checked(&request[..]).unwrap();
    assert_eq!((buffer.message_type(), buffer.length()), (5130, 24));
    assert_eq!(buffer.flags(), 0x301);
    assert_eq!(buffer.payload(), [8, 0, 1, 0, 4, 0, 0, 0]);
}

#[test]
fn a_machine_without_rdma_says_so() {
    match NldevSocket::open() {
        Err(error) => assert!(matches!(error, NldevError::NoRdma), "{error}"),
        Ok(mut socket) => {
            for device in socket.read_devices().unwrap() {
                socket.read_queue_pairs(&device).unwrap();
            }
        }
    }
}

#[test]
fn the_driver_of_a_device_tells_whether_its_ports_are_known() {
    let sys = tempfile::tempdir().unwrap();
    let folder = |name: &str| sys.path().join("class/infiniband").join(name);
    std::fs::create_dir_all(folder("mlx5_0/device")).unwrap();
    std::os::unix::fs::symlink("../drivers/mlx5_core", folder("mlx5_0/device/driver")).unwrap();
    std::fs::create_dir_all(folder("rxe0")).unwrap();
    std::fs::write(folder("rxe0/parent"), "eth0\n").unwrap();
    std::fs::create_dir_all(folder("other0")).unwrap();
    let is_known = |device: &str| has_known_ports(sys.path(), device);
    assert_eq!(["mlx5_0", "rxe0", "other0"].map(is_known), [true, true, false]);
    assert!(!has_known_ports(Path::new("/nowhere"), "mlx5_0"));
}

proptest! {
    /// Neither random bytes nor a dump with some bytes replaced does any harm.
    #[test]
    fn no_bytes_panic_and_results_are_bounded(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        pairs in 0_u32..6,
    ) {
        let mut found = DumpState::default();
        let _either = parse_queue_pairs(&noise, 7, &mut found);
        let entries: Vec<Vec<u8>> = (0..pairs).map(|n| entry(n, Some(n), Vec::new())).collect();
        let mut datagram = dump_of(&entries);
        for (at, byte) in changes {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        let _either = parse_queue_pairs(&datagram, 7, &mut found);
        let _either = parse_devices(&datagram, 7, &mut DumpState::default());
        // An entry has at least a header and a number.
        prop_assert!(found.items.len() <= (noise.len() + datagram.len()) / 12);
    }

    /// Every queue pair of a dump is read, in order.
    #[test]
    fn all_numbers_are_read(
        numbers in prop::collection::vec((0_u32..1 << 24, any::<bool>()), 0..40),
    ) {
        let entries: Vec<Vec<u8>> = numbers
            .iter()
            .map(|(number, connected)| entry(*number, connected.then_some(*number), Vec::new()))
            .collect();
        let mut found = DumpState::default();
        parse_queue_pairs(&dump_of(&entries), 7, &mut found).unwrap();
        let number = |pair: &QueuePair| (pair.local_number, pair.remote_number.is_some());
        let read: Vec<(u32, bool)> = found.items.iter().map(number).collect();
        prop_assert_eq!(read, numbers);
    }
}

//! Packets leave a host with the DSCP of their job's level, and without it once it is taken back.
//!
//! Each test has a network namespace of its own, which belongs to its thread. It needs root and
//! `iptables`; without them it says so and passes.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use agent::dscp_rules::DscpRules;
use agent::kernel_dscp::{DscpSetter, KernelDscp};
use api::telemetry as proto;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket,
};
use nix::sys::time::TimeVal;

const ROCE_PORT: u16 = 4791;

/// Runs `test` where the loopback interface has the addresses of two NICs.
fn in_namespace(test: impl FnOnce() + Send) {
    let has_programs = ["ip", "iptables", "iptables-restore"].iter().all(|name| {
        Command::new(name).arg("-V").output().is_ok_and(|output| output.status.success())
    });
    if !nix::unistd::geteuid().is_root() || !has_programs {
        return eprintln!("skipped: needs root, ip and iptables");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                return eprintln!("skipped: no network namespace: {error}");
            }
            for arguments in
                ["link set lo up", "addr add 10.0.0.1/32 dev lo", "addr add 10.0.0.2/32 dev lo"]
            {
                let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
                assert!(done.success(), "ip {arguments}");
            }
            test();
        });
    });
}

/// Sees the IP headers of UDP packets as they arrive.
struct Receiver(OwnedFd);

impl Receiver {
    fn open() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Udp).unwrap();
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(5, 0)).unwrap();
        Self(socket)
    }

    /// The DSCP of a packet that is sent from this port between the two NICs.
    fn dscp_of(&self, from: u16, to: u16) -> u8 {
        let address = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        let sender = UdpSocket::bind(address(1, from)).unwrap();
        sender.send_to(b"payload", address(2, to)).unwrap();
        let mut packet = [0; 128];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap();
            assert!(length >= 28);
            if packet[20..24] == [from.to_be_bytes(), to.to_be_bytes()].concat()[..] {
                return packet[1] >> 2;
            }
        }
    }
}

fn rules(flows: &[(u32, Option<u32>)]) -> DscpRules {
    let job = |(dscp, udp_src_port): &(u32, Option<u32>)| proto::JobLevel {
        job: format!("job-{dscp}"),
        level: dscp >> 3,
        dscp: Some(*dscp),
        flows: vec![proto::LevelFlow {
            src: "10.0.0.1".to_owned(),
            dst: "10.0.0.2".to_owned(),
            udp_src_port: *udp_src_port,
        }],
    };
    DscpRules::from_levels(&proto::HostLevels {
        host: "h1".to_owned(),
        revision: 1,
        jobs: flows.iter().map(job).collect(),
        flows_left_out: 0,
    })
}

fn mangle_rules() -> String {
    let listed = Command::new("iptables-save").args(["-t", "mangle"]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

#[test]
fn packets_leave_with_the_dscp_of_their_job_until_it_is_taken_back() {
    in_namespace(|| {
        let receiver = Receiver::open();
        let own = Command::new("iptables")
            .args(["-t", "mangle", "-A", "POSTROUTING", "-p", "tcp", "-j", "ACCEPT"])
            .status();
        assert!(own.unwrap().success());
        let before = mangle_rules();
        assert_eq!(receiver.dscp_of(50_000, ROCE_PORT), 0);
        let kernel = KernelDscp::new(Path::new("/nonexistent"));
        assert_eq!(kernel.apply_rules(&rules(&[(56, Some(50_000)), (16, None)])), [""; 0]);
        assert_eq!(receiver.dscp_of(50_000, ROCE_PORT), 56);
        assert_eq!(receiver.dscp_of(50_001, ROCE_PORT), 16);
        // Other packets than RoCEv2 are left alone.
        assert_eq!(receiver.dscp_of(50_000, 4790), 0);
        // Another plan, and an agent that does not know what one before it has set.
        let kernel = KernelDscp::new(Path::new("/nonexistent"));
        assert_eq!(kernel.apply_rules(&rules(&[(8, Some(50_000)), (40, None)])), [""; 0]);
        assert_eq!(receiver.dscp_of(50_000, ROCE_PORT), 8);
        assert_eq!(receiver.dscp_of(50_001, ROCE_PORT), 40);
        assert_eq!(mangle_rules().matches("-j CRUX-DSCP").count(), 1);
        assert_eq!(kernel.undo_rules(), [""; 0]);
        assert_eq!(receiver.dscp_of(50_000, ROCE_PORT), 0);
        let without_comments =
            |text: &str| text.lines().filter(|line| line.starts_with('-')).count();
        assert_eq!(without_comments(&mangle_rules()), without_comments(&before));
        assert!(!mangle_rules().contains("CRUX"), "{}", mangle_rules());
    });
}

//! A real etcd for tests: `etcd` on the path (Debian package etcd-server). Without it, it
//! says so, and the tests that want one pass.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lab::DEADLINE;

/// An etcd server of one, with its data.
pub(crate) struct Etcd {
    server: Option<Child>,
    data: TempDir,
    /// Where it is reached, `host:port`.
    pub(crate) client: String,
    peer: String,
    scheme: &'static str,
    more: Vec<String>,
}

impl Etcd {
    /// Starts one, if there is any.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with("http", &[]).await
    }

    /// Starts one that is asked by this scheme, with more arguments, if there is any.
    pub(crate) async fn start_with(scheme: &'static str, more: &[&str]) -> Option<Self> {
        let data = TempDir::new().unwrap();
        let mut etcd = Self {
            server: None,
            data,
            client: free_address(),
            peer: free_address(),
            scheme,
            more: more.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        if !etcd.run() {
            eprintln!("left out: no etcd on the path (Debian package etcd-server)");
            return None;
        }
        etcd.answers().await;
        Some(etcd)
    }

    pub(crate) fn run(&mut self) -> bool {
        let url = |address: &str| format!("http://{address}");
        let asked_at = format!("{}://{}", self.scheme, self.client);
        let data: PathBuf = self.data.path().join("data");
        let started = Command::new("etcd")
            .args(["--log-level", "error", "--name", "one", "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &asked_at])
            .args(["--advertise-client-urls", &asked_at])
            .args(["--listen-peer-urls", &url(&self.peer)])
            .args(["--initial-advertise-peer-urls", &url(&self.peer)])
            .args(["--initial-cluster", &format!("one={}", url(&self.peer))])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.server = started.ok();
        self.server.is_some()
    }

    async fn answers(&self) {
        let connected = async {
            while TcpStream::connect(&self.client).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, connected).await.unwrap();
    }

    /// Loses everything, and starts again empty.
    pub(crate) async fn lose_data(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.data.path().join("data")).unwrap();
        assert!(self.run());
        self.answers().await;
    }

    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
    }
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

//! The connection below P4Runtime and gNMI: TCP, TLS, and what notices that its other end is gone.
//!
//! The decision: the kernel notices it, by keepalive probes of TCP and `TCP_USER_TIMEOUT` (gRFC
//! A18). Servers of gRPC's C core end a connection with `too_many_pings` after a few HTTP/2 pings
//! without data in between (gRFC A8), which is what the stream of a backup is. Such pings find only
//! what the kernel cannot see, a proxy whose far side is gone, and are as rare as servers allow.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use topology::error_chain;

use super::client::ClientError;
use super::connection_error::is_without_tls;
use super::session_log::shorten_text;
use crate::config::{ServerCertificate, SouthboundConfig, TlsConfig};

/// Whether a server ended a connection for its HTTP/2 pings, by the text of the failure: gRPC's C
/// core ends the streams with "Too many pings" and the connection with "too_many_pings" (gRFC A8).
pub(crate) fn is_too_many_pings(failure: &str) -> bool {
    failure.to_ascii_lowercase().replace('_', " ").contains("too many pings")
}

/// Connects to a server of a switch at `address`, `host:port`. The second part is the certificate
/// that it has shown.
///
/// # Errors
/// The address is invalid, or nothing answers there before the deadline.
pub(crate) async fn connect_channel(
    address: &str,
    limits: &SouthboundConfig,
) -> Result<(Channel, Option<ServerCertificate>), ClientError> {
    let tls = limits.tls.as_ref();
    let plain = Endpoint::try_from(TlsConfig::server_uri(tls, address))
        .map_err(|_| ClientError::Address(address.to_owned()))?;
    let (secured, certificate) =
        TlsConfig::secure_endpoint(tls, plain).map_err(ClientError::Connect)?;
    let endpoint = secured
        .connect_timeout(limits.connect_deadline)
        .http2_keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.rpc_deadline)
        .http2_max_header_list_size(limits.headers_max);
    let connecting = endpoint.connect_with_connector(tcp_connector(limits));
    let connected = tokio::time::timeout(limits.connect_deadline, connecting).await;
    match connected.map_err(|_| ClientError::Deadline("connect"))? {
        Ok(channel) => Ok((channel, certificate)),
        Err(error) if is_without_tls(&error) => Err(ClientError::WithoutTls(address.to_owned())),
        Err(error) => Err(ClientError::Connect(error)),
    }
}

/// Waits until the certificate that a switch has shown is revoked, if it ever is.
pub(crate) async fn until_revoked(certificate: Option<ServerCertificate>) {
    match certificate {
        Some(certificate) => certificate.until_revoked().await,
        None => std::future::pending().await,
    }
}

/// What a call failed with, and why where the connection failed: tonic says only that it did.
pub(crate) fn describe_status(status: &Status) -> String {
    let causes = std::error::Error::source(status).map(error_chain);
    let text = causes.unwrap_or_else(|| status.message().to_owned());
    shorten_text(&text)
}

/// Connections that end when the peer is silent for twice the keepalive: after one, it is asked
/// every second, and then what it did not acknowledge has waited for too long.
fn tcp_connector(limits: &SouthboundConfig) -> HttpConnector {
    // The kernel counts in seconds.
    let idle = limits.keepalive.max(Duration::from_secs(1));
    let mut tcp = HttpConnector::new();
    // The scheme of an address with TLS is https; the endpoint adds TLS to what connects here.
    tcp.enforce_http(false);
    // Small writes follow each other within a repair; Nagle's algorithm would hold the second back.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(Duration::from_secs(1)));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(2 * idle));
    tcp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PING_INTERVAL;

    #[test]
    fn a_connection_that_ends_for_its_pings_is_recognised() {
        let by_status = "Too many pings";
        let by_goaway = r#"transport error: connection error received: detected excessive load \
                           generating behavior (b"too_many_pings")"#;
        let cases = [(by_status, true), (by_goaway, true), ("the switch stops serving", false)];
        for (text, expected) in cases {
            assert_eq!(is_too_many_pings(text), expected, "{text}");
        }
    }

    /// How a server counts HTTP/2 pings (gRFC A8): those sooner after the last than `least` are strikes,
    /// unless data was sent in between, and the connection ends after the last that is allowed.
    struct PingPolicy {
        server: &'static str,
        least: Duration,
        strikes_allowed: Option<u32>,
    }

    impl PingPolicy {
        const fn with(server: &'static str, least_s: u64, strikes_allowed: Option<u32>) -> Self {
            Self { server, least: Duration::from_secs(least_s), strikes_allowed }
        }

        /// Pings of a connection at these times until the server ends it, on a stream without data.
        fn ends_connection(&self, mut pings: impl Iterator<Item = Duration>) -> bool {
            let (mut last, mut strikes) = (None, 0);
            pings.any(|at| {
                let is_early = last.replace(at).is_some_and(|last| at < last + self.least);
                strikes += u32::from(is_early);
                self.strikes_allowed.is_some_and(|allowed| strikes > allowed)
            })
        }
    }

    /// Streams that are lost in `lasts`, of a client that begins with this interval between pings and
    /// doubles it whenever a connection ends for them.
    fn streams_lost(policy: &PingPolicy, mut interval: Duration, lasts: Duration) -> u32 {
        let mut lost = 0;
        loop {
            let pings = (1..).map(|n| n * interval).take_while(|at| *at <= lasts);
            if !policy.ends_connection(pings) {
                return lost;
            }
            (lost, interval) = (lost + 1, 2 * interval);
        }
    }

    /// Ping policies by their published defaults: a model of them and of the client's schedule, not a
    /// run of the servers. The stream of a backup has no data, which would forgive strikes.
    const POLICIES: [PingPolicy; 7] = [
        PingPolicy::with("gRPC's C core", 300, Some(2)),
        PingPolicy::with("gRPC for Go", 300, Some(2)),
        PingPolicy::with("gRPC for Java", 300, Some(2)),
        PingPolicy::with("bmv2, on the C core", 300, Some(2)),
        PingPolicy::with("SONiC PINS, on the C core", 300, Some(2)),
        PingPolicy::with("Stratum, which allows more", 10, Some(2)),
        PingPolicy::with("tonic, which does not count", 0, None),
    ];

    #[test]
    fn no_server_ends_a_stream_for_its_pings_within_an_hour() {
        let hour = Duration::from_secs(3_600);
        for policy in &POLICIES {
            let lost = streams_lost(policy, PING_INTERVAL, hour);
            assert_eq!(lost, 0, "{}", policy.server);
        }
        // As it was: the third early ping ends a connection; intervals that double lose six of them.
        let lost = streams_lost(&POLICIES[0], Duration::from_secs(5), hour);
        assert_eq!(lost, 6);
    }

    #[test]
    fn a_failed_call_has_the_reason_of_the_connection() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let failed = Status::from_error(Box::new(refused));
        assert_eq!(describe_status(&failed), "connection refused");
        assert_eq!(describe_status(&Status::unavailable("as it says")), "as it says");
    }
}

//! Why a connection to a switch failed, where more can be said than that.
//!
//! Pure. A mismatch of TLS shows as a message that cannot be read; who runs the fabric needs to
//! know which side to change.

use std::error::Error;
use std::io;

use tokio_rustls::rustls;

/// Whether a connection failed since the other side does not speak TLS.
pub(super) fn is_without_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        // `io::Error` does not return what it wraps as its source, so the chain alone would miss
        // it.
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::InvalidMessage(_)) = cause.downcast_ref().or(inner) {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_of_tls_is_recognised_wherever_it_is() {
        let invalid = || rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(is_without_tls(&invalid()));
        assert!(is_without_tls(&io::Error::new(io::ErrorKind::InvalidData, invalid())));
        assert!(!is_without_tls(&io::Error::from(io::ErrorKind::ConnectionRefused)));
    }
}

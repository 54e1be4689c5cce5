//! The example manifests and the script that places gated pods.

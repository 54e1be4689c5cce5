//! Emulated hosts and training jobs that send RoCEv2 packets over the in-process fabric.

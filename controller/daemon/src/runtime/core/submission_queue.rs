//! The queue of inputs, read one by one, except that reports of health that wait are read together.
//!
//! The decision: a spine that fails takes hundreds of cables with it, whose reports come within
//! milliseconds. Each alone would be protected, lowered and published, one after the other, with
//! rows that the next one takes back.

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::liveness::{FabricPart, PartHealth};
use crate::state::{EventSubmission, SubmittedItem};

/// The queue of inputs.
pub(super) struct SubmissionQueue {
    receiver: mpsc::Receiver<EventSubmission>,
    /// The first of those that wait, if it was looked at.
    first: Option<EventSubmission>,
}

impl SubmissionQueue {
    pub(super) fn new(receiver: mpsc::Receiver<EventSubmission>) -> Self {
        Self { receiver, first: None }
    }

    /// The next submission; `None` after the last sender is gone. Nothing is lost if the future is
    /// dropped.
    pub(super) async fn next_submission(&mut self) -> Option<EventSubmission> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.receiver.recv().await,
        }
    }

    /// The next submission, if it waits already and is a report of health; when it was received.
    pub(super) fn take_health(&mut self) -> Option<(FabricPart, PartHealth, Instant)> {
        let next = self.first.take().or_else(|| self.receiver.try_recv().ok())?;
        match next.item {
            SubmittedItem::Health(part, health) => Some((part, health, next.received)),
            _ => {
                self.first = Some(next);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::LinkId;

    use super::*;

    #[tokio::test]
    async fn reports_that_wait_are_read_together_and_nothing_is_passed() {
        let (sender, receiver) = mpsc::channel(8);
        let mut queue = SubmissionQueue::new(receiver);
        let report =
            |link| EventSubmission::part_health(FabricPart::Cable(LinkId(link)), PartHealth::Down);
        let query = || EventSubmission::query(|_| ()).0;
        for submission in [report(0), report(2), query(), report(4)] {
            sender.try_send(submission).unwrap();
        }
        drop(sender);
        assert!(matches!(queue.next_submission().await.unwrap().item, SubmittedItem::Health(..)));
        let taken: Vec<FabricPart> =
            std::iter::from_fn(|| queue.take_health()).map(|(part, ..)| part).collect();
        assert_eq!(taken, [FabricPart::Cable(LinkId(2))]);
        assert!(matches!(queue.next_submission().await.unwrap().item, SubmittedItem::Query(_)));
        assert!(matches!(queue.next_submission().await.unwrap().item, SubmittedItem::Health(..)));
        assert!(queue.take_health().is_none());
        assert!(queue.next_submission().await.is_none());
    }
}

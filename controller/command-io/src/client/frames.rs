//! Server-sent events as they come off a connection.
//!
//! The part of the format that a controller uses: fields `id`, `event` and `data` of one line each,
//! an empty line after each event, and comments. The decision: bytes go in as they come, whole
//! frames come out, so a frame may arrive in any number of pieces.

use std::collections::VecDeque;

use http_body_util::BodyExt;
use hyper::body::Incoming;

/// One server-sent event: its name, id and data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFrame {
    /// Its id, which is a position.
    pub id: String,
    /// Its type; empty for an ordinary event.
    pub event: String,
    /// Its payload.
    pub data: String,
}

/// The frames of a response that stays open.
#[derive(Debug)]
pub struct FrameStream {
    body: Incoming,
    reader: FrameDecoder,
}

impl FrameStream {
    pub(super) fn new(body: Incoming) -> Self {
        let reader = FrameDecoder::default();
        Self { body, reader }
    }

    /// The next frame; none when the connection has ended.
    pub async fn next(&mut self) -> Option<EventFrame> {
        loop {
            if let Some(frame) = self.reader.whole.pop_front() {
                return Some(frame);
            }
            let piece = self.body.frame().await?.ok()?;
            if let Some(bytes) = piece.data_ref() {
                self.reader.push_bytes(bytes);
            }
        }
    }
}

/// Assembles frames from bytes.
#[derive(Debug, Default)]
struct FrameDecoder {
    line: Vec<u8>,
    frame: EventFrame,
    whole: VecDeque<EventFrame>,
}

impl FrameDecoder {
    fn push_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            // A frame without data consisted of comments.
            self.whole.extend(Some(frame).filter(|frame| !frame.data.is_empty()));
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "id" => self.frame.id = value,
            "event" => self.frame.event = value,
            "data" => self.frame.data = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_however_they_arrive() {
        let text =
            b": crux\nretry: 1000\n\nid: 7.1\ndata: {\"a\": 1}\n\nevent: missed\ndata: 2\n\nid: ";
        let frame = |id: &str, event: &str, data: &str| EventFrame {
            id: id.to_owned(),
            event: event.to_owned(),
            data: data.to_owned(),
        };
        let expected = [frame("7.1", "", "{\"a\": 1}"), frame("", "missed", "2")];
        for size in [1, 3, 7, text.len()] {
            let mut reader = FrameDecoder::default();
            text.chunks(size).for_each(|piece| reader.push_bytes(piece));
            assert_eq!(reader.whole, expected, "pieces of {size}");
        }
    }
}

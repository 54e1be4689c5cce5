//! Small files in the columns of each published trace, whole and damaged.

use super::*;

fn read(text: &str) -> JobTrace {
    JobTrace::read_jobs(TraceReader::new(text.as_bytes()).unwrap(), &TraceSelection::default())
        .unwrap()
}

fn refused(text: &str) -> String {
    match TraceReader::new(text.as_bytes()) {
        Ok(reader) => {
            JobTrace::read_jobs(reader, &TraceSelection::default()).unwrap_err().to_string()
        }
        Err(error) => error.to_string(),
    }
}

fn counts(skipped: &SkippedRows) -> Vec<(SkipReason, u64, u64)> {
    let counts = skipped.by_reason.iter();
    counts.map(|(reason, count)| (*reason, count.rows, count.first_line)).collect()
}

#[test]
fn philly_is_sorted_and_starts_at_zero() {
    let trace = read(
        "timestamp,duration,num_gpus,gpu_time,cluster\n\
         2017-10-09 07:01:55,66.0,1,66.0,11cb48\n\
         2017-10-09 07:00:55,30,8,240,6214e9\n\
         2017-10-09 07:01:55,66.0,1,66.0,11cb48\n\
         2017-10-09 07:02:55,-3,8,240,6214e9\n\
         2017-10-32 07:02:55,30,8,240,6214e9\n\
         2017-10-09 07:02:55,30,0,0,6214e9\n\
         2017-10-09 07:02:55,0,1,0,6214e9\n\
         2017-10-09 07:02:55,nan,1,0,6214e9\n\
         2017-10-09 07:02:55,1e300,1,0,6214e9\n\
         2017-10-09 07:02:55,30,99999999999999,0,6214e9\n\
         2017-10-09 07:02:55,30\n",
    );
    let first = TraceJob {
        id: "3".to_owned(),
        submitted_seconds: 0.0,
        gpus: 8,
        length: JobLength::Seconds(30.0),
        model: None,
        tenant: Some("6214e9".to_owned()),
    };
    assert_eq!(trace.jobs[0], first);
    assert_eq!(trace.jobs.len(), 2);
    assert_eq!(trace.jobs[1].submitted_seconds, 60.0);
    let expected = [
        (SkipReason::Columns, 1, 12),
        (SkipReason::InvalidNumber, 1, 9),
        (SkipReason::InvalidDate, 1, 6),
        (SkipReason::Negative, 1, 5),
        (SkipReason::Huge, 2, 10),
        (SkipReason::NoGpus, 1, 7),
        (SkipReason::NoLength, 1, 8),
        (SkipReason::Duplicate, 1, 4),
    ];
    assert_eq!(counts(&trace.skipped), expected);
    assert_eq!(trace.skipped.total_rows(), 9);
    assert!(
        trace.skipped.to_string().contains("2 rows (a number beyond reason), first in line 10")
    );
}

#[test]
fn muri_traces_have_milliseconds_and_note_their_random_models() {
    let trace = read(
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval\n\
         0,16,0,4378042,vgg16,16,1453510000,3840000\n\
         1,1,27069000,5190727,a2c,64,2683606000,13956000\n",
    );
    assert_eq!(trace.jobs[0].length, JobLength::Seconds(1_453_510.0));
    assert_eq!(trace.jobs[1].submitted_seconds, 27_069.0);
    assert_eq!(trace.jobs[1].model.as_deref(), Some("a2c"));
    assert!(trace.notes[0].contains("drawn at random"));
    assert_eq!(trace.notes[1], "columns that are not read: iterations, batch_size, interval");
}

#[test]
fn lingjun_joins_jobs_with_their_workers() {
    let workers = LingjunWorkers::read_workers(
        "id,job_name,worker_name,replica_type,RES\n\
         1,a,a-0,worker,\"{\"\"nvidia.com/gpu\"\": 8, \"\"cpu\"\": 90}\"\n\
         2,a,a-1,worker,\"{\"\"nvidia.com/gpu\"\": \"\"8\"\"}\"\n\
         3,a,a-1,worker,\"{\"\"nvidia.com/gpu\"\": 8}\"\n\
         4,a,a-m,master,\"{\"\"cpu\"\": 1}\"\n\
         5,b,b-0,worker,{broken\n\
         6,c,c-0,worker,{}\n\
         7,d\n"
            .as_bytes(),
    )
    .unwrap();
    assert_eq!(
        counts(&workers.skipped),
        [(SkipReason::Columns, 1, 8), (SkipReason::InvalidNumber, 1, 6)]
    );
    let jobs = "id,uid,job_name,kind,model,status,gmt_job_submitted,gmt_job_running,\
        gmt_job_stopped,gmt_job_finished\n\
        1,u1,a,k,GPT,s,2023/04/01 10:00,2023/04/01 10:05,,2023/04/01 12:05\n\
        2,u1,a,k,,s,2023/04/01 11:00,2023/04/01 11:05,2023/04/01 11:15,\n\
        3,u1,a,k,,s,2023/04/01 11:00,,,\n\
        4,u1,a,k,,s,2023/04/01 11:00,2023/04/01 11:05,,\n\
        5,u1,a,k,,s,2023/04/01 11:00,2023/04/01 10:05,,2023/04/01 12:05\n\
        6,u1,b,k,,s,2023/04/01 11:00,2023/04/01 11:05,,2023/04/01 12:05\n\
        7,u1,c,k,,s,2023/04/01 11:00,2023/04/01 11:05,,2023/04/01 12:05\n";
    let reader = TraceReader::with_workers(jobs.as_bytes(), workers).unwrap();
    assert_eq!(reader.format(), TraceFormat::Lingjun);
    let trace = JobTrace::read_jobs(reader, &TraceSelection::default()).unwrap();
    let found: Vec<_> = trace.jobs.iter().map(|job| (job.gpus, job.length)).collect();
    assert_eq!(found, [(16, JobLength::Seconds(7_200.0)), (16, JobLength::Seconds(600.0))]);
    assert_eq!(trace.jobs[0].model.as_deref(), Some("GPT"));
    let expected = [
        (SkipReason::NoGpus, 1, 8),
        (SkipReason::NeverRan, 1, 4),
        (SkipReason::StillRunning, 1, 5),
        (SkipReason::TimesOutOfOrder, 1, 6),
        (SkipReason::NoWorkers, 1, 7),
    ];
    assert_eq!(counts(&trace.skipped), expected);
    assert!(refused(jobs).contains("needs its worker.csv"));
}

/// As published: attempts with machines, dates without a zone, jobs that never ran.
const LOG: &str = r#"[
 {"status": "Pass", "vc": "v1", "jobid": "app_1", "submitted_time": "2017-10-07 01:20:50",
  "attempts": [
   {"start_time": "2017-10-07 01:21:00", "end_time": "2017-10-07 01:31:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]},
   {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 02:21:00",
    "detail": [{"ip": "m3", "gpus": ["gpu7"]}]}]},
 {"vc": "v2", "jobid": "app_2", "submitted_time": "2017-10-07 01:20:00", "attempts": []},
 {"vc": "v2", "jobid": "app_3", "submitted_time": "2017-10-07 01:20:00", "attempts": [
   {"start_time": "2017-10-07 01:21:00", "end_time": null, "detail": []}]},
 {"vc": "v2", "jobid": "app_4", "submitted_time": "None", "attempts": []},
 {"jobid": "app_5", "submitted_time": "2017-10-07 01:21:00", "attempts": [
   {"start_time": "2017-10-07 01:22:00", "end_time": "2017-10-07 01:23:00",
    "detail": [{"ip": "m1", "gpus": ["gpu2"]}]}]},
 7
]"#;

#[test]
fn philly_is_read_as_it_is_published() {
    for text in [LOG.to_owned(), format!("\u{feff}\n{LOG}\n")] {
        let trace = read(&text);
        let jobs: Vec<_> = trace
            .jobs
            .iter()
            .map(|job| (&*job.id, job.submitted_seconds, job.gpus, job.length))
            .collect();
        let first = ("app_1", 0.0, 3, JobLength::Seconds(3_600.0));
        assert_eq!(jobs, [first, ("app_5", 10.0, 1, JobLength::Seconds(60.0))]);
        assert_eq!((trace.jobs[0].tenant.as_deref(), &trace.jobs[1].tenant), (Some("v1"), &None));
        let expected = [
            (SkipReason::InvalidDate, 1, 4),
            (SkipReason::NoJob, 1, 6),
            (SkipReason::NeverRan, 1, 2),
            (SkipReason::StillRunning, 1, 3),
        ];
        assert_eq!(counts(&trace.skipped), expected);
        assert!(trace.skipped.to_string().contains("1 record (never ran), first record 2"));
        assert!(trace.notes.iter().any(|note| note.contains("first attempt")), "{:?}", trace.notes);
        let unread = "fields that are not read: attempts.detail.ip, status";
        assert_eq!(trace.notes[1], unread);
    }
    for broken in ["[{]", "[] x", "["] {
        assert!(refused(broken).contains("cannot read the JSON; Philly publishes a list"));
    }
    assert!(refused("{}").contains("or Philly's list in JSON (cluster_job_log)"));
}

#[test]
fn our_own_csv_needs_little() {
    let trace = read("gpus,iterations,submitted_seconds,model\n8,100,5,gpt-24l/A100\n1,7,5.5,\n");
    assert_eq!(trace.jobs[0].length, JobLength::Iterations(100));
    assert_eq!(trace.jobs[0].id, "2");
    assert_eq!((trace.jobs[1].submitted_seconds, &trace.jobs[1].model), (0.5, &None));
}

#[test]
fn an_invalid_trace_is_reported_with_its_line() {
    assert!(refused("").ends_with("found \"nothing\""));
    let header = refused("timestamp,duration,gpus\n1,2,3\n");
    assert!(header.starts_with("line 1: expected the columns timestamp,duration,num_gpus,cluster"));
    assert!(header.ends_with("found \"timestamp,duration,gpus\""));
    assert!(refused("submitted_seconds,gpus\n1,2\n").starts_with("line 1"));
    let none = refused("submitted_seconds,gpus,duration_seconds\n-1,2,3\n");
    assert_eq!(
        none,
        "no job of the selection in the trace; skipped: 1 row (a time below zero), first in line 2"
    );
}

#[test]
fn a_selection_bounds_what_is_kept() {
    let text: String = (0..100).map(|n| format!("{n},1,10,{}\n", n % 2)).collect();
    let text = format!("submitted_seconds,gpus,duration_seconds,tenant\n{text}");
    let read =
        |selection| JobTrace::read_jobs(TraceReader::new(text.as_bytes()).unwrap(), &selection);
    let few = TraceSelection { max_jobs: 10, ..TraceSelection::default() };
    assert_eq!(
        read(few).unwrap_err().to_string(),
        "line 12: more than 10 jobs; select a tenant or a window of time"
    );
    let window =
        TraceSelection { tenant: Some("1".to_owned()), window: Some(10.0..20.0), max_jobs: 10 };
    assert_eq!(read(window).unwrap().jobs.len(), 5);
}

/// An input of rows without end that never stands in memory, up to an error.
struct Endless {
    row: Vec<u8>,
    position: usize,
    rows: u32,
}

impl std::io::Read for Endless {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the reader uses the buffer"))
    }
}

impl BufRead for Endless {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.rows == 0 {
            return Err(std::io::Error::other("the disk is gone"));
        }
        Ok(&self.row[self.position..])
    }

    fn consume(&mut self, amount: usize) {
        self.position += amount;
        if self.position == self.row.len() {
            self.position = 0;
            self.rows -= 1;
            let letters = format!("{},1,10\n", self.rows);
            self.row = letters.into_bytes();
        }
    }
}

#[test]
fn a_long_trace_streams_until_its_input_fails() {
    let endless = Endless {
        row: b"submitted_seconds,gpus,duration_seconds\n".to_vec(),
        position: 0,
        rows: 50_001,
    };
    let mut reader = TraceReader::new(endless).unwrap();
    let good = reader.by_ref().take_while(Result::is_ok).count();
    assert_eq!((good, reader.line_number()), (50_000, 50_002));
    assert!(reader.next().is_none());
}

proptest::proptest! {
    #[test]
    fn records_of_philly_are_jobs_or_skipped(
        records in proptest::collection::vec((0u8..6, 0usize..3, 0u32..60), 0..20),
    ) {
        let texts = records.iter().enumerate().map(|(at, (kind, gpus, minute))| {
            let gpus = vec!["\"gpu\""; *gpus].join(",");
            let (start, end) = match kind {
                0 => ("\"None\"".to_owned(), "null".to_owned()),
                1 => ("\"2017-10-07 01:00:00\"".to_owned(), "null".to_owned()),
                2 => (format!("\"2017-10-07 01:{minute:02}:30\""), "\"2017-10-07 01:30:00\"".to_owned()),
                _ => ("\"2017-10-07 01:00:00 PDT\"".to_owned(), format!("\"2017-10-07 08:{minute:02}:00Z\"")),
            };
            // Every fourth has the name of another one.
            let id = if kind % 4 == 3 { 0 } else { at };
            format!(
                "{{\"jobid\": \"{id}\", \"submitted_time\": \"2017-10-07 01:00:00\", \"attempts\": \
                 [{{\"start_time\": {start}, \"end_time\": {end}, \"detail\": [{{\"gpus\": [{gpus}]}}]}}]}}"
            )
        });
        let text = format!("[{}]", texts.collect::<Vec<_>>().join(","));
        let mut reader = TraceReader::new(text.as_bytes()).unwrap();
        let jobs = reader.by_ref().filter(Result::is_ok).count();
        let skipped = usize::try_from(reader.skipped_rows().total_rows()).unwrap();
        proptest::prop_assert_eq!(jobs + skipped, records.len());
    }

    #[test]
    fn no_text_is_too_damaged(
        rows in proptest::collection::vec("[0-9,.\"eE :/a-z-]{0,40}", 0..20),
    ) {
        for header in ["timestamp,duration,num_gpus,cluster", "submitted_seconds,gpus,iterations"] {
            let text = format!("{header}\n{}", rows.join("\n"));
            let mut reader = TraceReader::new(text.as_bytes()).unwrap();
            let jobs = reader.by_ref().filter(Result::is_ok).count();
            let blank = rows.iter().filter(|row| row.trim().is_empty()).count();
            let skipped = usize::try_from(reader.skipped_rows().total_rows()).unwrap();
            proptest::prop_assert_eq!(jobs + skipped + blank, rows.len());
        }
    }
}

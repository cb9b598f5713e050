//! A thread that analyses documents, so that the editor's questions about names need not wait for the compiler.

use std::collections::VecDeque;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::analysis::{Analysis, Job};

/// The thread, with its questions and answers. It ends behind the last of them, and nobody waits for it: a server that is told to end
/// ends, though a search for layouts be under way.
pub struct Worker {
    jobs: Sender<Job>,
    /// Analyses, each with the path of its document.
    pub done: Receiver<(String, Analysis)>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread left.
    pub fn start() -> std::io::Result<Worker> {
        let (jobs, asked) = unbounded::<Job>();
        let (answers, done) = unbounded();
        let thread = thread::Builder::new().name("analysis".to_string()).stack_size(1 << 26);
        thread.spawn(move || work(&asked, &answers))?;
        Ok(Worker { jobs, done })
    }

    /// Asks for an analysis; one that is asked for before it has begun another of the same document takes its place.
    pub fn ask(&self, job: Job) {
        // The thread ends once this is gone, not before.
        let _ = self.jobs.send(job);
    }
}

fn work(asked: &Receiver<Job>, answers: &Sender<(String, Analysis)>) {
    let mut waiting: VecDeque<Job> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match asked.recv() {
                Ok(job) => waiting.push_back(job),
                Err(_) => return,
            }
        }
        for job in asked.try_iter() {
            match waiting.iter_mut().find(|other| other.path == job.path) {
                Some(other) => *other = job,
                None => waiting.push_back(job),
            }
        }
        let Some(job) = waiting.pop_front() else { continue };
        let analysis = Analysis::of(&job);
        if answers.send((job.path, analysis)).is_err() {
            return;
        }
    }
}

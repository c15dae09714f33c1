//! A thread with a runtime of its own, which ends when it is told to.

use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

/// A thread that runs a future until it ends, or until this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread. Whatever the future has started ends with it.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = make() => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Waits until the future has ended by itself.
    pub(crate) fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed by the thread itself.
            let _ = thread.join();
        }
    }

    /// Ends it, and waits for its end.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        self.finish();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

//! What a made-up trace is made of.

use std::{fmt, time::Duration};

use crate::domain::policy::MAX_SPAN;

/// What the trace is made of. Shares are between 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub seed: u64,
    /// Crossings or reports that really happened; their copies come on top.
    pub occurrences: u64,
    /// Over which they happen.
    pub duration: Duration,
    pub subjects: Subjects,
    /// Of occurrences that are retried at least once.
    pub retried: f64,
    /// Between the times that copies of one occurrence carry, at most.
    pub retry_spread: Duration,
    /// Of occurrences that are replayed once more from a dead-letter queue.
    pub replayed: f64,
    /// After the occurrence, at most.
    pub replay_delay: Duration,
    /// A device's clock is off by at most so much, for ever.
    pub clock_skew: Duration,
    /// Of retries that are stamped after the clock has jumped.
    pub clock_jumps: f64,
    /// By which it jumps, either way.
    pub clock_jump: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Subjects {
    Fences {
        devices: u32,
        fences: u32,
        /// Between two genuine crossings of a device.
        min_revisit: Duration,
        /// Of crossings that are followed by a re-entry of the same fence soon.
        re_entries: f64,
        /// By which a re-entry follows later than `min_revisit`, in the mean of an exponential
        /// distribution.
        mean_revisit: Duration,
    },
    Fleet {
        assets: u32,
        /// Of assets that are parked at any time.
        parked: f64,
        /// Standard deviation of each coordinate of a fix.
        noise_m: f64,
        speed_m_per_s: f64,
    },
}

impl Recipe {
    /// What is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let share = |value: f64, name: &str| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is a share: give 0 to 1"))
            }
        };
        share(self.retried, "--retried")?;
        share(self.replayed, "--replayed")?;
        share(self.clock_jumps, "--clock-jumps")?;
        let subjects = match &self.subjects {
            Subjects::Fences {
                devices,
                fences,
                re_entries,
                ..
            } => {
                if !(0.0..1.0).contains(re_entries) {
                    return Err("--re-entries is a share below 1".to_owned());
                }
                (*devices).min(*fences)
            }
            Subjects::Fleet {
                assets,
                parked,
                noise_m,
                speed_m_per_s,
            } => {
                share(*parked, "--parked")?;
                for (value, name) in [(noise_m, "--noise-m"), (speed_m_per_s, "--speed")] {
                    if !(0.0..1e6).contains(value) {
                        return Err(format!("{name} is a number from 0 on"));
                    }
                }
                *assets
            }
        };
        if subjects == 0 {
            return Err("give at least one device and fence, or asset".to_owned());
        }
        let spans = [
            self.duration,
            self.retry_spread,
            self.replay_delay,
            self.clock_skew,
            self.clock_jump,
        ];
        if spans.iter().any(|span| *span > MAX_SPAN) {
            return Err("spans of time are at most ten years".to_owned());
        }
        Ok(())
    }
}

impl Default for Recipe {
    /// The transitions document's trace: 6 % repeated at least once, copies at most 200 ms apart,
    /// genuine crossings at least half a second apart.
    fn default() -> Self {
        Self {
            seed: 1,
            occurrences: 1_000_000,
            duration: Duration::from_secs(12 * 3600),
            subjects: Subjects::Fences {
                devices: 1_000_000,
                fences: 500,
                min_revisit: Duration::from_millis(500),
                re_entries: 0.02,
                mean_revisit: Duration::from_secs(1),
            },
            retried: 0.06,
            retry_spread: Duration::from_millis(200),
            replayed: 0.001,
            replay_delay: Duration::from_secs(59 * 60),
            clock_skew: Duration::ZERO,
            clock_jumps: 0.0,
            clock_jump: Duration::from_secs(5),
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "made up, seed {}: {} ", self.seed, self.occurrences)?;
        match &self.subjects {
            Subjects::Fences {
                devices,
                fences,
                min_revisit,
                re_entries,
                mean_revisit,
            } => write!(
                f,
                "crossings of {fences} fences by {devices} devices in {:?}, at least {min_revisit:?} \
                 apart, {re_entries} of them followed by a re-entry within {mean_revisit:?} more in the mean",
                self.duration
            )?,
            Subjects::Fleet {
                assets,
                parked,
                noise_m,
                speed_m_per_s,
            } => write!(
                f,
                "reports of {assets} assets in {:?}, {parked} of them parked, noise {noise_m} m, \
                 speed {speed_m_per_s} m/s",
                self.duration
            )?,
        }
        write!(
            f,
            "; {} retried at most {:?} later, {} replayed at most {:?} later",
            self.retried, self.retry_spread, self.replayed, self.replay_delay
        )?;
        if !self.clock_skew.is_zero() {
            write!(f, "; clocks off by at most {:?}", self.clock_skew)?;
        }
        if self.clock_jumps > 0.0 {
            let (jumps, jump) = (self.clock_jumps, self.clock_jump);
            write!(f, "; {jumps} of retries after a clock jump of {jump:?}")?;
        }
        Ok(())
    }
}

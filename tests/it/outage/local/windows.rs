//! Guards, sliding windows and sessions in an outage and after it.

use dedupd::grpc::proto::Reason::{self, Boundary, Fallback, FirstSeen, Redelivery, Restamped};

use super::{
    super::world::{admit_events, crossing, reasons, request},
    *,
};

const NEVER: Duration = Duration::ZERO;

async fn cross(client: &mut Client, namespace: &str, device: &str, at: &[u64]) -> Vec<Reason> {
    let events = at
        .iter()
        .map(|&ms| crossing(device, NEVER + Duration::from_millis(ms)))
        .collect();
    let verdicts = admit_events(client, request(namespace, events, "")).await;
    reasons(&verdicts)
}

#[tokio::test(flavor = "multi_thread")]
async fn t02_the_edges_of_windows_are_guarded_across_the_recovery() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    part(&mut world).await;
    let pod = &mut world.client;
    let in_outage = cross(pod, "fences", "car", &[2100, 1950, 2300, 2100, 9000]).await;
    assert_eq!(
        in_outage,
        [Fallback, Boundary, Restamped, Redelivery, Fallback]
    );
    let in_outage = cross(pod, "sliding", "car", &[1900, 2899, 2900]).await;
    assert_eq!(in_outage, [Fallback, Restamped, Fallback]);
    join(&world);
    until_written_back(&world).await;
    let afterwards = cross(&mut others, "fences", "car", &[1950, 1899, 2100, 9100]).await;
    assert_eq!(afterwards, [Boundary, FirstSeen, Redelivery, Restamped]);
    let afterwards = cross(&mut others, "sliding", "car", &[901, 900, 3899, 3900]).await;
    assert_eq!(afterwards, [Restamped, FirstSeen, Restamped, FirstSeen]);
    assert_eq!(double_admissions(&world, "fences"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_sessions_of_the_outage_and_of_the_fleet_are_joined() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    // Each of the fleet's and of the pod's own is extended by a seen event in the next bucket, and
    // both by one in the same bucket.
    let before = cross(&mut others, "sessions", "bus", &[2_000]).await;
    assert_eq!(before, [FirstSeen]);
    part(&mut world).await;
    let alone = cross(
        &mut world.client,
        "sessions",
        "car",
        &[5_000, 14_000, 23_000],
    )
    .await;
    assert_eq!(alone, [Fallback, Restamped, Restamped]);
    let twice = cross(&mut world.client, "sessions", "bus", &[8_000, 17_000]).await;
    assert_eq!(twice, [Fallback, Restamped]);
    let meanwhile = cross(&mut others, "sessions", "bus", &[11_000, 20_500]).await;
    assert_eq!(meanwhile, [Restamped, Restamped]);
    join(&world);
    until_written_back(&world).await;
    let joined = cross(&mut others, "sessions", "car", &[33_000, 44_000]).await;
    assert_eq!(joined, [Restamped, FirstSeen]);
    assert_eq!(double_admissions(&world, "sessions"), 1.0);
}

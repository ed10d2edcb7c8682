package fleet;

import com.google.gson.Gson;
import dedupd.v1.Event;
import dedupd.v1.Transition;
import dedupd.v1.TransitionKind;

/** A line of the queue: a truck crossed a fence. The last two fields make work fail or take long, to see what happens. */
record Crossing(String device, String fence, String kind, String at, int fails, int takesMs) {
    private static final Gson GSON = new Gson();

    static Crossing parse(String line) {
        return GSON.fromJson(line, Crossing.class);
    }

    /** What is missing stays unset: dedupd says what is wrong with the event, and that it is dead. */
    Event event() {
        Transition.Builder transition = Transition.newBuilder();
        if (device != null) {
            transition.setDeviceId(device);
        }
        if (fence != null) {
            transition.setFenceId(fence);
        }
        transition.setKind(
                switch (kind == null ? "" : kind) {
                    case "ENTER" -> TransitionKind.TRANSITION_KIND_ENTER;
                    case "EXIT" -> TransitionKind.TRANSITION_KIND_EXIT;
                    case "DWELL" -> TransitionKind.TRANSITION_KIND_DWELL;
                    default -> TransitionKind.TRANSITION_KIND_UNSPECIFIED;
                });
        Event.Builder event = Event.newBuilder().setTransition(transition);
        if (at != null) {
            event.setOccurredAtText(at); // the device's own clock, RFC 3339 with an offset; never the time of arrival
        }
        return event.build();
    }
}

package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "dedupd.example/conformance/gen/dedupd/v1"
)

// From the script's JSON to messages.

type stamp struct {
	Seconds int64 `json:",string"`
	Nanos   int32
}

func (s *stamp) message() *timestamppb.Timestamp {
	if s == nil {
		return nil
	}
	return &timestamppb.Timestamp{Seconds: s.Seconds, Nanos: s.Nanos}
}

// double is text, which NaN and the infinities are, too.
type double string

func (d *double) message() *float64 {
	if d == nil {
		return nil
	}
	value, err := strconv.ParseFloat(string(*d), 64)
	if err != nil {
		panic(err)
	}
	return &value
}

type event struct {
	Transition *struct {
		DeviceID      string `json:"device_id"`
		FenceID       string `json:"fence_id"`
		Kind          pb.TransitionKind
		Sequence      *uint64 `json:",string"`
		SequenceEpoch uint32  `json:"sequence_epoch,string"`
	}
	Ping *struct {
		AssetID   string                                 `json:"asset_id"`
		LatLng    *struct{ Latitude, Longitude *double } `json:"lat_lng"`
		Projected *struct {
			X, Y *double
			Epsg uint32 `json:",string"`
		}
	}
	Keyed *struct {
		EventID string `json:"event_id"`
	}
	OccurredAt  *stamp  `json:"occurred_at"`
	Text        *string `json:"text"`
	UnixNanos   *int64  `json:"unix_nanos,string"`
	IngestedAt  *stamp  `json:"ingested_at"`
	ContentHash *uint64 `json:"content_hash,string"`
}

func (e *event) message() *pb.Event {
	if e == nil {
		return nil
	}
	message := &pb.Event{IngestedAt: e.IngestedAt.message(), ContentHash: e.ContentHash}
	switch {
	case e.Transition != nil:
		message.Identity = &pb.Event_Transition{Transition: &pb.Transition{
			DeviceId:      e.Transition.DeviceID,
			FenceId:       e.Transition.FenceID,
			Kind:          e.Transition.Kind,
			Sequence:      e.Transition.Sequence,
			SequenceEpoch: e.Transition.SequenceEpoch,
		}}
	case e.Ping != nil:
		ping := &pb.Ping{AssetId: e.Ping.AssetID}
		if degrees := e.Ping.LatLng; degrees != nil {
			ping.Position = &pb.Ping_LatLng{LatLng: &pb.LatLng{
				Latitude: degrees.Latitude.message(), Longitude: degrees.Longitude.message(),
			}}
		} else if point := e.Ping.Projected; point != nil {
			ping.Position = &pb.Ping_Projected{Projected: &pb.ProjectedPoint{
				X: point.X.message(), Y: point.Y.message(), Epsg: point.Epsg,
			}}
		}
		message.Identity = &pb.Event_Ping{Ping: ping}
	case e.Keyed != nil:
		message.Identity = &pb.Event_Keyed{Keyed: &pb.Keyed{EventId: e.Keyed.EventID}}
	}
	switch {
	case e.OccurredAt != nil:
		message.Time = &pb.Event_OccurredAt{OccurredAt: e.OccurredAt.message()}
	case e.Text != nil:
		message.Time = &pb.Event_OccurredAtText{OccurredAtText: *e.Text}
	case e.UnixNanos != nil:
		message.Time = &pb.Event_OccurredAtUnixNanos{OccurredAtUnixNanos: *e.UnixNanos}
	}
	return message
}

type step struct {
	Do                   string
	Through              string
	Namespace            string
	RequestID            string `json:"request_id"`
	Events               []*event
	Repeat               int
	OmitClaims           bool `json:"omit_claims"`
	Claims               []string
	Operations           []*step
	BatchID              uint64 `json:"batch_id,string"`
	Pipelined            bool
	Cancel               bool
	TimeoutMilliseconds  int `json:"timeout_milliseconds"`
	IntervalMilliseconds int `json:"interval_milliseconds"`
	Milliseconds         int
	Looks                int
	Event                *event
	Limit                uint32
	Service              string
}

func (s *step) admitRequest() *pb.AdmitRequest {
	request := &pb.AdmitRequest{Namespace: s.Namespace, RequestId: s.RequestID, OmitClaims: s.OmitClaims}
	for range max(s.Repeat, 1) {
		for _, event := range s.Events {
			request.Events = append(request.Events, event.message())
		}
	}
	return request
}

// tokens of earlier steps by name.
type tokens map[string][]byte

func (t tokens) named(names []string) [][]byte {
	claims := make([][]byte, len(names))
	for i, name := range names {
		if digits, isHex := strings.CutPrefix(name, "hex:"); isHex {
			bytes, err := hex.DecodeString(digits)
			if err != nil {
				panic(err)
			}
			claims[i] = bytes
		} else if token, known := t[name]; known {
			claims[i] = token
		} else {
			panic(fmt.Sprintf("no token is called %q", name))
		}
	}
	return claims
}

func (s *step) streamRequest(tokens tokens) *pb.StreamRequest {
	request := &pb.StreamRequest{BatchId: s.BatchID}
	switch s.Do {
	case "admit":
		request.Operation = &pb.StreamRequest_Admit{Admit: s.admitRequest()}
	case "confirm":
		request.Operation = &pb.StreamRequest_Confirm{Confirm: &pb.ConfirmRequest{Claims: tokens.named(s.Claims)}}
	case "release":
		request.Operation = &pb.StreamRequest_Release{Release: &pb.ReleaseRequest{Claims: tokens.named(s.Claims)}}
	case "renew":
		request.Operation = &pb.StreamRequest_Renew{Renew: &pb.RenewRequest{Claims: tokens.named(s.Claims)}}
	}
	return request
}

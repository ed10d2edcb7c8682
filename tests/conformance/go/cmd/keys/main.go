// Command keys computes the store keys of events without dedupd: the contract of docs/keys.md.
// It reads vectors as JSON lines on standard input and prints the keys of each.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"os"
	"strings"

	"github.com/uber/h3-go/v4"
	"github.com/zeebo/xxh3"
	"golang.org/x/crypto/blake2b"
)

// Namespace is what its configuration says of keys.
type Namespace struct {
	Prefix string
	Layout string // plain or tagged
	Digest string // xxh3 or blake2b
	// Resolution of H3, for pings whose position is part of the key.
	Resolution *int
	// Of a sliding window the guard is as wide as the window; of a session the width is its gap.
	WidthNs int64 `json:"width_ns,string"`
	GuardNs int64 `json:"guard_ns,string"`
	Session bool
}

// Event is one of the three kinds.
type Event struct {
	UnixNanos  int64 `json:"unix_nanos,string"`
	Transition *struct {
		DeviceID      string `json:"device_id"`
		FenceID       string `json:"fence_id"`
		Kind          string
		Sequence      *uint64 `json:",string"`
		SequenceEpoch uint32  `json:"sequence_epoch,string"`
	}
	Ping *struct {
		AssetID   string  `json:"asset_id"`
		Latitude  float64 `json:",string"`
		Longitude float64 `json:",string"`
	}
	Keyed *struct {
		EventID string `json:"event_id"`
	}
}

var (
	letters = map[string]string{"ENTER": "E", "EXIT": "X", "DWELL": "D"}
	escape  = strings.NewReplacer(`\`, `\\`, `|`, `\|`)
)

// StoreKeys are the keys to look at, the primary first; what is written goes there.
func StoreKeys(namespace Namespace, event Event) []string {
	names, subject := namesAndSubject(namespace, event)
	prefix := namespace.Prefix
	if namespace.Layout == "tagged" {
		prefix += fmt.Sprintf("{%016x}:", xxh3.HashString(subject))
	}
	for i, name := range names {
		names[i] = prefix + name
	}
	return names
}

func namesAndSubject(namespace Namespace, event Event) (names []string, subject string) {
	switch {
	case event.Keyed != nil:
		return []string{event.Keyed.EventID}, event.Keyed.EventID
	case event.Transition != nil:
		crossing := event.Transition
		subject = escape.Replace(crossing.DeviceID) + "|" + escape.Replace(crossing.FenceID) + "|" + letters[crossing.Kind]
		if crossing.Sequence != nil {
			subject += "|#"
			if crossing.SequenceEpoch != 0 {
				subject += fmt.Sprintf("%d.", crossing.SequenceEpoch)
			}
			subject += fmt.Sprint(*crossing.Sequence)
			return []string{digest(namespace, subject)}, subject
		}
		for _, bucket := range buckets(namespace, event) {
			names = append(names, digest(namespace, fmt.Sprintf("%s|%d", subject, bucket)))
		}
	default:
		ping, cell := event.Ping, "-"
		subject = escape.Replace(ping.AssetID)
		if namespace.Resolution != nil {
			cell = h3.LatLngToCell(h3.NewLatLng(ping.Latitude, ping.Longitude), *namespace.Resolution).String()
		}
		for _, bucket := range buckets(namespace, event) {
			start := bucket * (namespace.WidthNs / 1_000_000_000)
			names = append(names, digest(namespace, fmt.Sprintf("%s|%d|%s", subject, start, cell)))
		}
	}
	return names, subject
}

// buckets are the event's own, then those that a guard or a session reaches.
func buckets(namespace Namespace, event Event) []int64 {
	width, guard := namespace.WidthNs, namespace.GuardNs
	// Division in Go is toward zero; buckets are counted toward minus infinity.
	bucket, offset := event.UnixNanos/width, event.UnixNanos%width
	if offset < 0 {
		bucket, offset = bucket-1, offset+width
	}
	all := []int64{bucket}
	if namespace.Session || offset+1 < guard {
		all = append(all, bucket-1)
	}
	if namespace.Session || width-offset < guard {
		all = append(all, bucket+1)
	}
	return all
}

func digest(namespace Namespace, material string) string {
	if namespace.Digest == "blake2b" {
		hash, err := blake2b.New(16, nil)
		if err != nil {
			panic(err) // 16 bytes are allowed.
		}
		hash.Write([]byte(material))
		return hex.EncodeToString(hash.Sum(nil))
	}
	sum := xxh3.HashString128(material).Bytes()
	return new(big.Int).SetBytes(sum[:]).String()
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var vector struct {
			Namespace Namespace
			Event     Event
		}
		if err := json.Unmarshal(lines.Bytes(), &vector); err != nil {
			log.Fatal(err)
		}
		fmt.Println(strings.Join(StoreKeys(vector.Namespace, vector.Event), "\t"))
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

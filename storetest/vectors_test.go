package storetest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluicehq/sluice"
)

const vectorDir = "../testdata/vectors"

var update = flag.Bool("update", false, "write the model's answers into the vectors")

// TestVectorsAreTheModels checks that the answers in every vector are those that the model computes from its limit,
// times and costs.
func TestVectorsAreTheModels(t *testing.T) {
	for _, v := range Vectors(t, vectorDir) {
		file := filepath.Join(vectorDir, v.Name)
		text := write(t, solve(t, v))
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, old) {
			t.Errorf("%s does not have the model's answers: see the README in its directory. The model has\n%s", file, text)
		}
	}
}

// solve returns v with the model's answers.
func solve(t *testing.T, v Vector) Vector {
	p, model := v.Compile(t), new(Model)
	terms := newTerms(p)
	v.Plan = VectorPlan{Tick: terms.tick, Capacity: terms.capacity}
	switch {
	case p.Kernel.Permits():
		v.Plan.Span = terms.period
	case p.Limit.Algorithm <= sluice.GCRA:
		v.Plan.Unit, v.Plan.Drain = terms.rate.Denom().Int64(), terms.rate.Num().Int64()
		v.Plan.Size = v.Plan.Unit * terms.capacity
	default:
		v.Plan.Span = terms.period
		if terms.monthDay > 0 {
			v.Plan.Span = 1
		}
	}
	for i, s := range v.Steps {
		charges := s.charges("", s.Compile(t, v, p), v.Lock(t))
		receipts := make([]sluice.Receipt, len(charges))
		if err := model.TakeAt(t.Context(), s.Now, charges, receipts); err != nil {
			t.Fatal(err)
		}
		v.Steps[i] = s.answer(receipts[0], model.Decide(charges[0], receipts[0]))
		if len(charges) > 1 {
			v.Steps[i].Lock = lockAnswer(receipts[1], model.Decide(charges[1], receipts[1]))
		}
	}
	return v
}

// write returns the text of a vector, with one line for each step.
func write(t *testing.T, v Vector) []byte {
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var b bytes.Buffer
	b.WriteString("{\"what\": ")
	b.Write(encode(v.What))
	b.WriteString(",\n \"limit\": ")
	b.Write(encode(v.Limit))
	if v.Penalty != (VectorPenalty{}) {
		b.WriteString(",\n \"penalty\": ")
		b.Write(encode(v.Penalty))
	}
	b.WriteString(",\n \"plan\": ")
	b.Write(encode(v.Plan))
	b.WriteString(",\n \"steps\": [")
	for i, s := range v.Steps {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(encode(s))
	}
	b.WriteString("\n]}\n")
	return b.Bytes()
}

func TestVectors(t *testing.T) {
	RunVectors(t, vectorDir, func(*testing.T) TimedStore { return new(Model) })
}

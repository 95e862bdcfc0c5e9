package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/policy"
)

func overrideCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "override",
		Short: "Give a subject of a rule another limit, block it or exempt it",
		Long: "Set, list and delete overrides: another limit for a subject of a rule, a block or an exemption,\n" +
			"until a date if there is one. They are kept in the database of the gateway's --rules, and are\n" +
			"in force on all instances within a second.",
		Args: cobra.NoArgs,
	}
	c.AddCommand(overrideSetCommand(), overrideListCommand(), overrideDeleteCommand())
	return c
}

// overrideSettings are what "override set" says.
type overrideSettings struct {
	adminClient
	block, exempt bool
	until, reason string
}

func overrideSetCommand() *cobra.Command {
	s := &overrideSettings{adminClient: adminClient{writing: true}}
	c := s.command("set RULE PART=VALUE... [LIMIT...]",
		"Set the override of a subject, in place of the one that it has",
		"Set the override of a subject of a rule: one limit or several, of a rule with in_flight a number,\n"+
			"--block or --exempt. It takes the place of the one for the same values, if there is one. A part\n"+
			"of the key that is left out stands for every value, a network of client_ip for each of its\n"+
			"addresses.\n\n"+
			"A date without a time is the end of that day in UTC.",
		"  sluice override set per-key api_key=k-42 5000/minute --until 2026-12-31 --reason 'a launch'\n"+
			"  sluice override set per-address client_ip=203.0.113.0/24 --block",
		func(c *cobra.Command, args []string) error { return s.set(c, args) })
	f := c.Flags()
	f.BoolVar(&s.block, "block", false, "refuse the requests that the rule would count for the subject")
	f.BoolVar(&s.exempt, "exempt", false, "count nothing for the subject")
	f.StringVar(&s.until, "until", "", "when it ends: a `date`, which holds to its end in UTC, or a time such as 2026-12-31T18:00:00Z")
	f.StringVar(&s.reason, "reason", "", "why, for people")
	return c
}

func (s *overrideSettings) set(c *cobra.Command, args []string) error {
	subject, err := parseSubject("override set", args, true)
	switch {
	case err != nil:
		return err
	case len(subject.key) == 0:
		return errors.New("override set: whose? Write values of the rule's key, as in api_key=k-42")
	case len(subject.rest) == 0 && !s.block && !s.exempt:
		return errors.New("override set: which limit? Write one as in 5000/minute, or --block or --exempt")
	}
	if ended(s.until) {
		return fmt.Errorf("--until: %s has passed: \"sluice override delete\" ends an override now", ending(s.until))
	}
	o := policy.Override{Rule: subject.rule, Key: subject.key, Block: s.block, Exempt: s.exempt, Until: s.until, Reason: s.reason}
	if len(subject.rest) != 1 {
		o.Limits = subject.rest
	} else if n, err := strconv.ParseInt(subject.rest[0], 10, 64); err == nil {
		o.InFlight = n
	} else {
		o.Limit = subject.rest[0]
	}
	old, err := s.find(c.Context(), &subject)
	if err != nil {
		return err
	}
	method, path, etag := http.MethodPost, "/v1/overrides", ""
	if old != nil {
		method, path, etag = http.MethodPut, path+"/"+url.PathEscape(old.ID), old.ETag
	}
	answer, err := s.call(c.Context(), method, path, s.changeQuery(), etag, o, nil)
	if err != nil {
		return err
	}
	return s.print(c, answer, func(out io.Writer) {
		if old != nil {
			fmt.Fprintf(out, "%s %s\n", s.tense("was", "is"), describe(&old.Document))
		}
		fmt.Fprintf(out, "%s %s\n", s.tense("is", "would be"), describe(&o))
	})
}

// tense returns what is said of what has been done, or of what would be if nothing has.
func (a *adminClient) tense(done, dry string) string {
	if a.dryRun {
		return dry + ":"
	}
	return done + ":"
}

// overrideItem is an override as the API lists it.
type overrideItem struct {
	control.Item
	Document policy.Override `json:"document"`
}

// find returns the override of a rule for just that key, or nil.
func (a *adminClient) find(ctx context.Context, s *subjectArgs) (*overrideItem, error) {
	for q := s.query(); ; {
		var page struct {
			Items []overrideItem
			Next  string
		}
		if _, err := a.call(ctx, http.MethodGet, "/v1/overrides", q, "", nil, &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if maps.Equal(page.Items[i].Document.Key, s.key) {
				return &page.Items[i], nil
			}
		}
		if page.Next == "" {
			return nil, nil
		}
		q.Set("cursor", page.Next)
	}
}

// describe puts an override into words.
func describe(o *policy.Override) string {
	s := o.Rule + " " + keyText(o.Key) + ": " + effect(o)
	if o.Until != "" {
		s += ", until " + ending(o.Until)
	}
	if o.Reason != "" {
		s += " (" + o.Reason + ")"
	}
	return plainText(s)
}

// effect is what an override does.
func effect(o *policy.Override) string {
	switch {
	case o.Block:
		return "blocked"
	case o.Exempt:
		return "exempt"
	case o.Limit != "":
		return o.Limit
	case o.InFlight > 0:
		return fmt.Sprintf("%d in flight", o.InFlight)
	}
	return strings.Join(o.Limits, ", ")
}

// ending says that a date is the end of its day.
func ending(until string) string {
	if len(until) == len("2006-01-02") {
		return "the end of " + until + " (UTC)"
	}
	return until
}

// listedEnd says of what has ended that it has: it counts for nothing.
func listedEnd(until string) string {
	if ended(until) {
		return until + " (ended)"
	}
	return until
}

func ended(until string) bool {
	end, err := policy.ParseUntil(until)
	return err == nil && !end.After(time.Now())
}

// keyText writes a key as the commands take it.
func keyText(key map[string]string) string {
	var all []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		all = append(all, part+"="+key[part])
	}
	return plainText(strings.Join(all, " "))
}

func overrideListCommand() *cobra.Command {
	a := &adminClient{}
	var rule string
	c := a.command("list [PART=VALUE...]", "List overrides",
		"List overrides, those of the policy file too: all of them, those of a rule, or those with these\nvalues in their keys. With --output json, a line for each.",
		"  sluice override list --rule per-key",
		func(c *cobra.Command, args []string) error {
			s, err := parseSubject("override list", args, false)
			if err != nil {
				return err
			}
			if len(s.rest) > 0 {
				return fmt.Errorf("override list: %.60q: write a part of the key and its value, as in client_ip=192.0.2.7, or --rule RULE", s.rest[0])
			}
			s.rule = rule
			return a.list(c, "/v1/overrides", s.query(), "RULE\tKEY\tLIMIT\tUNTIL\tFROM\tBY\tREASON", func(text jsonText) ([]string, error) {
				var i overrideItem
				err := text.into(&i)
				o := &i.Document
				return []string{o.Rule, keyText(o.Key), effect(o), listedEnd(o.Until), i.Source, o.By, o.Reason}, err
			})
		})
	c.Flags().StringVar(&rule, "rule", "", "only those of this `rule`")
	return c
}

// list writes what a list of the API has, page by page: its JSON, or a table of a line for each.
func (a *adminClient) list(c *cobra.Command, path string, q url.Values, head string, cells func(jsonText) ([]string, error)) error {
	out := c.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if a.output == "text" {
		fmt.Fprintln(table, head)
	}
	q.Set("limit", "1000")
	for {
		var page struct {
			Items []jsonText
			Next  string
		}
		if _, err := a.call(c.Context(), http.MethodGet, path, q, "", nil, &page); err != nil {
			return err
		}
		for _, text := range page.Items {
			err := error(nil)
			if a.output == "json" {
				_, err = fmt.Fprintf(out, "%s\n", text)
			} else if row, problem := cells(text); problem == nil {
				for i := range row {
					row[i] = plainText(row[i])
				}
				_, err = fmt.Fprintln(table, strings.Join(row, "\t"))
			} else {
				err = problem
			}
			if err != nil {
				return &failedError{err}
			}
		}
		if err := table.Flush(); err != nil {
			return &failedError{err}
		}
		if page.Next == "" {
			return nil
		}
		q.Set("cursor", page.Next)
	}
}

func overrideDeleteCommand() *cobra.Command {
	a := &adminClient{writing: true}
	return a.command("delete RULE PART=VALUE...", "Delete the override of a subject",
		"Delete the override of a rule with exactly these values in its key. An override of the policy file\ncannot be deleted, and applies again if there is one for the same subject.",
		"  sluice override delete per-key api_key=k-42",
		func(c *cobra.Command, args []string) error {
			s, err := parseSubject("override delete", args, true)
			switch {
			case err != nil:
				return err
			case len(s.rest) > 0:
				return fmt.Errorf("override delete: %.60q: write a part of the key and its value, as in api_key=k-42", s.rest[0])
			case len(s.key) == 0:
				return errors.New("override delete: whose? Write values of the rule's key, as in api_key=k-42")
			}
			old, err := a.find(c.Context(), &s)
			if err != nil {
				return err
			}
			if old == nil {
				return &failedError{fmt.Errorf("there is no override of rule %q for %s: see \"sluice override list\"", s.rule, keyText(s.key))}
			}
			answer, err := a.call(c.Context(), http.MethodDelete, "/v1/overrides/"+url.PathEscape(old.ID), a.changeQuery(), old.ETag, nil, nil)
			if err != nil {
				return err
			}
			return a.print(c, answer, func(out io.Writer) {
				fmt.Fprintf(out, "%s %s\n", a.tense("deleted", "would delete"), describe(&old.Document))
			})
		})
}

package main

import (
	"cmp"
	"context"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func message(ctx context.Context, c *call, a *answer) error {
	options := []option.RequestOption{
		option.WithBaseURL(c.URL), option.WithAPIKey(c.Key), option.WithMaxRetries(c.Retries), option.WithMiddleware(a.count),
	}
	for name, value := range c.Headers {
		options = append(options, option.WithHeader(name, value))
	}
	client := anthropic.NewClient(options...)
	params := anthropic.MessageNewParams{
		Model: c.Model, MaxTokens: cmp.Or(c.MaxTokens, 1000),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(c.Text))},
	}
	if c.Tools {
		t := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: properties, Required: required}, toolName)
		t.OfTool.Description = anthropic.String(toolText)
		params.Tools = []anthropic.ToolUnionParam{t}
	}
	if !c.Stream {
		whole, err := client.Messages.New(ctx, params)
		if err == nil {
			readMessage(whole, a)
		}
		return err
	}
	stream := client.Messages.NewStreaming(ctx, params)
	defer stream.Close()
	var whole anthropic.Message
	for stream.Next() {
		if err := whole.Accumulate(stream.Current()); err != nil {
			return err
		}
		if a.leaves(c) {
			return nil
		}
	}
	if stream.Err() == nil {
		readMessage(&whole, a)
	}
	return stream.Err()
}

func readMessage(whole *anthropic.Message, a *answer) {
	for _, block := range whole.Content {
		a.Text += block.Text
		if block.Type == "tool_use" {
			a.Tool = &tool{block.Name, string(block.Input)}
		}
	}
	a.Finish = string(whole.StopReason)
	u := whole.Usage
	a.Usage = &usage{u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens}
}

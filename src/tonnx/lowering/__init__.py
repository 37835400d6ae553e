"""The lowering language that all front ends share: rules on values, without any framework."""
